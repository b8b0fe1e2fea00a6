// Finds a trained model: a checkpoint, and the configuration that describes its parameters.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/result.h"

namespace adaptive_train {

struct SavedModel {
  std::string checkpoint;  // its folder
  Config config;           // model.* are its dimensions
  /// Newer checkpoints in the folder that are damaged, one line each.
  std::vector<std::string> refused;
};

/// `path` is a run's folder, a folder of checkpoints, or a checkpoint. Of several checkpoints the
/// newest one that verifies completely is used. The configuration is `config` if given, else
/// config.resolved.toml of the run's folder or config.toml beside an imported checkpoint. Fails in
/// one line if either is missing or no checkpoint is intact. A checkpoint named by `path` is not
/// verified. Blocking.
Result<SavedModel> FindSavedModel(const std::string& path, const std::string& config);

}  // namespace adaptive_train
