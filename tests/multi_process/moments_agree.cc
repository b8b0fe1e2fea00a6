// moments_agree CONFIG CHECKPOINT OTHER TOLERANCE: whether the first moments of each parameter in two checkpoints of a run
// with this configuration differ by at most TOLERANCE of their norm. After one step they are AdamW's share of the gradient.
// Prints the worst parameter.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/config.h"
#include "kernels/host_memory.h"
#include "runtime/checkpoint/checkpoint_reader.h"

namespace adaptive_train {
namespace {

kernels::HostMemory host_memory;

/// In the order of the whole model's layout.
Result<std::vector<float>> FirstMoments(const ParameterLayout& layout, const char* folder) {
  auto reader = CheckpointReader::Open(folder);
  if (!reader) return tl::unexpected(reader.error());
  std::vector<float> moments(static_cast<std::size_t>(layout.size()));
  auto read = reader->Read(ReadingRank::OfAll(layout), {&host_memory, {{{}, moments, {}, {}}}});
  if (!read) return tl::unexpected(read.error());
  return moments;
}

/// The norm of the difference over that of `b`; infinite where only `b` is 0.
double Difference(const std::vector<float>& a, const std::vector<float>& b,
                  const ParameterRange& range) {
  double apart = 0, norm = 0;
  for (std::int64_t i = range.offset; i < range.offset + range.count; ++i) {
    const double x = a[static_cast<std::size_t>(i)], y = b[static_cast<std::size_t>(i)];
    apart += (x - y) * (x - y);
    norm += y * y;
  }
  return apart == 0 ? 0 : std::sqrt(apart / norm);
}

Result<bool> Agree(char** arguments) {
  auto config = LoadConfig(arguments[1], {});
  if (!config) return tl::unexpected(config.error());
  const ModelDims dims = DimsOf(config->model);
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  auto a = FirstMoments(layout, arguments[2]);
  if (!a) return tl::unexpected(a.error());
  auto b = FirstMoments(layout, arguments[3]);
  if (!b) return tl::unexpected(b.error());
  double worst = 0;
  const ParameterRange* where = &layout.ranges().front();
  for (const ParameterRange& range : layout.ranges()) {
    const double difference = Difference(*a, *b, range);
    if (!(difference > worst) && !std::isnan(difference)) continue;
    worst = difference;
    where = &range;
  }
  fmt::print("{}: {:.2e}\n", where->name, worst);
  return worst <= std::atof(arguments[4]);
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "moments_agree CONFIG CHECKPOINT OTHER TOLERANCE\n");
    return 2;
  }
  const auto agree = adaptive_train::Agree(argv);
  if (!agree) {
    fmt::print(stderr, "moments_agree: {}\n", agree.error().message);
    return 2;
  }
  return *agree ? 0 : 1;
}
