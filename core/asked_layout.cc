#include "core/asked_layout.h"

#include <fmt/format.h>

#include <utility>

namespace adaptive_train {
namespace {

constexpr const char* kKey = "parallel.layout";

Result<void> CheckEmpty(const std::vector<StageLayers>& stages) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].first_layer == stages[s].end_layer)
      return Fail(fmt::format("{}: stage {} of 0 to {} has no layer; each needs E, t or L", kKey, s,
                              stages.size() - 1));
  }
  return {};
}

bool HasChunks(const std::string& schedule) {
  return schedule == "interleaved" || schedule == "breadth-first";
}

/// Chunks per rank of so many stages in all.
Result<int> InterleaveOf(const ParallelConfig& parallel, std::int64_t stages) {
  const std::int64_t chunks = parallel.interleave.value_or(HasChunks(parallel.schedule) ? 2 : 1);
  if (!parallel.pipeline) {
    if (stages % chunks == 0) return static_cast<int>(chunks);
    return Fail(
        fmt::format("{} has {} stages: {} chunks per rank (parallel.interleave) need a "
                    "multiple of {}",
                    kKey, stages, chunks, chunks));
  }
  const std::int64_t pipeline = *parallel.pipeline;
  if (parallel.interleave && stages != pipeline * chunks)
    return Fail(
        fmt::format("{} has {} stages: parallel.pipeline = {} and parallel.interleave = {} "
                    "need {}",
                    kKey, stages, pipeline, chunks, pipeline * chunks));
  if (stages % pipeline != 0 || (pipeline == 1 && stages > 1))
    return Fail(
        fmt::format("{} has {} stages: parallel.pipeline = {} needs {}", kKey, stages, pipeline,
                    pipeline == 1 ? "one" : fmt::format("{} or a multiple of it", pipeline)));
  return static_cast<int>(stages / pipeline);
}

}  // namespace

Result<std::optional<AskedLayout>> AskedLayoutOf(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.layout == "auto") return std::nullopt;
  auto stages = StageLayoutFromText(parallel.layout, static_cast<int>(config.model.layers));
  if (!stages) return FailIn(kKey, stages.error());
  if (auto full = CheckEmpty(*stages); !full) return tl::unexpected(full.error());
  const auto count = static_cast<int>(stages->size());
  const auto chunks = InterleaveOf(parallel, count);
  if (!chunks) return tl::unexpected(chunks.error());
  if (*chunks > 1 && count == *chunks)
    return Fail(
        fmt::format("{} has {} stages, all of one rank (parallel.interleave = {}): one "
                    "stage is written without |",
                    kKey, count, *chunks));
  if (*chunks > 1 && parallel.schedule != "auto" && !HasChunks(parallel.schedule))
    return Fail(
        fmt::format("{} has {} stages, {} of each rank: they need parallel.schedule = "
                    "\"interleaved\", \"breadth-first\" or \"auto\"",
                    kKey, count, *chunks));
  return AskedLayout{std::move(*stages), count / *chunks, *chunks};
}

}  // namespace adaptive_train
