// Where a trained model is: a checkpoint, and the configuration that says what its parameters mean.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/result.h"

namespace adaptive_train {

struct SavedModel {
  std::string checkpoint;  // its folder
  Config config;           // model.* are its dimensions
  /// Newer checkpoints of the folder that do not hold, one line each.
  std::vector<std::string> refused;
};

/// `path` is a run's folder, a folder of checkpoints, or a checkpoint; of several checkpoints the
/// newest counts that holds to its last byte. The configuration is config.resolved.toml of the run's folder, or config.toml
/// beside an imported checkpoint, unless `config` names another file. Fails, in one line, where
/// either is missing or no checkpoint holds. A checkpoint that `path` names itself is not looked
/// into. Blocking.
Result<SavedModel> FindSavedModel(const std::string& path, const std::string& config);

}  // namespace adaptive_train
