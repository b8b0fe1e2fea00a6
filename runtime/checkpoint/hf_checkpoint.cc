#include "runtime/checkpoint/hf_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "kernels/host_memory.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_parameters.h"
#include "runtime/checkpoint/checkpoint_shard.h"
#include "runtime/checkpoint/hf_model.h"

namespace adaptive_train {
namespace {

/// No run has these words: a run starts from an imported checkpoint, it does not resume it.
constexpr const char* kImported = ", imported from a Hugging Face folder";

/// One shard with everything.
Result<void> WriteFirstCheckpoint(const CheckpointFolder& folder, const std::string& model,
                                  const ParameterLayout& layout,
                                  const std::vector<float>& parameters) {
  std::vector<float> state(kResiduals * parameters.size());
  std::copy(parameters.begin(), parameters.end(), state.begin());
  const auto attempt = static_cast<std::uint64_t>(::getpid());
  auto written = WriteShard(folder, attempt, 0, ShardIndex::OfAll(0, layout),
                            std::as_bytes(std::span<const float>(state)), [] { return false; });
  if (!written) return written;
  CheckpointStep at;
  at.identity = model + kImported;
  auto committed = CommitShards(folder, attempt, at, {at.identity, ParametersOf(layout)}, 1);
  // The import has failed already: what cannot be removed is left.
  if (!committed) (void)RemoveFlatFolder(folder.PartPathOf(0, attempt));
  return committed;
}

}  // namespace

Result<std::int64_t> ExportCheckpoint(const std::string& checkpoint, const ModelDims& dims,
                                      const std::string& hf_folder) {
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  std::vector<float> parameters(static_cast<std::size_t>(layout.size()));
  kernels::HostMemory host;
  auto step = ReadParameters(checkpoint, dims, layout, {{0, layout.size()}}, host, parameters);
  if (!step) return step;
  auto written = WriteHfModel(hf_folder, dims, parameters);
  if (!written) return tl::unexpected(written.error());
  return step;
}

Result<ImportedCheckpoint> ImportCheckpoint(const std::string& hf_folder,
                                            std::optional<std::int64_t> sequence,
                                            const std::string& folder) {
  const CheckpointFolder checkpoints(folder);
  ImportedCheckpoint imported;
  imported.path = checkpoints.PathOf(0);
  std::error_code ignored;
  if (std::filesystem::exists(imported.path, ignored)) {
    return Fail(fmt::format("{}: there already; name another folder", imported.path));
  }
  auto model = ReadHfModel(hf_folder, sequence);
  if (!model) return tl::unexpected(model.error());
  const ParameterLayout layout(model->dims, StageSlice::Whole(model->dims));
  auto written =
      WriteFirstCheckpoint(checkpoints, IdentityOf(model->dims), layout, model->parameters);
  if (!written) return tl::unexpected(written.error());
  imported.dims = model->dims;
  imported.parameters = layout.size();
  imported.notes = std::move(model->notes);
  return imported;
}

}  // namespace adaptive_train
