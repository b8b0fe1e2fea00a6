#include "runtime/train/save_memory.h"

#include <utility>

#include "core/config.h"
#include "runtime/buddy/kept_checkpoint.h"
#include "runtime/data/token_dataset.h"
#include "runtime/train/checkpointer.h"
#include "runtime/train/data_fingerprint.h"

namespace adaptive_train {

Result<std::int64_t> SaveMemory(const std::string& run_dir, const std::string& kept,
                                std::int64_t least, std::int64_t committed,
                                std::function<void()> on_block) {
  const auto config = LoadConfig(run_dir + "/config.resolved.toml", {});
  if (!config) return tl::unexpected(config.error());
  const auto data = OpenDatasets({config->data.train, config->data.validation, config->data.format,
                                  config->model.sequence, TextVocab(config->model),
                                  static_cast<std::uint64_t>(config->train.seed)});
  if (!data) return tl::unexpected(data.error());
  const auto text = FingerprintOf(data->train, config->model.sequence);
  if (!text) return tl::unexpected(text.error());
  const CheckpointSettings settings = SettingsOf(*config, *text);
  return SaveKept({kept, least, committed, settings, std::move(on_block)},
                  CheckpointFolder(config->checkpoint.dir), OwnerOf(*config, settings));
}

}  // namespace adaptive_train
