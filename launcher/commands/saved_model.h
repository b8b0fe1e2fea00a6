// Where a trained model is: a checkpoint, and the configuration that says what its parameters mean.
#pragma once

#include <string>

#include "core/config.h"
#include "core/result.h"

namespace adaptive_train {

struct SavedModel {
  std::string checkpoint;  // its folder
  Config config;           // model.* are its dimensions
};

/// `path` is a run's folder, a folder of checkpoints, or a checkpoint; of several checkpoints the
/// newest counts. The configuration is config.resolved.toml of the run's folder, or config.toml
/// beside an imported checkpoint, unless `config` names another file. Fails, in one line, where
/// either is missing. Does not look into the checkpoint. Blocking.
Result<SavedModel> FindSavedModel(const std::string& path, const std::string& config);

}  // namespace adaptive_train
