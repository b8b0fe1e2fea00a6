// Between our checkpoints and Hugging Face's folders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model_shape.h"
#include "core/result.h"

namespace adaptive_train {

/// Reads the parameters of the checkpoint in `checkpoint`, a model of `dims`, and writes them to
/// `hf_folder`; see WriteHfModel. Gives the checkpoint's step. Blocking.
Result<std::int64_t> ExportCheckpoint(const std::string& checkpoint, const ModelDims& dims,
                                      const std::string& hf_folder);

struct ImportedCheckpoint {
  std::string path;  // of the checkpoint
  ModelDims dims;
  std::int64_t parameters = 0;
  std::vector<std::string> notes;  // see HfModel
};

/// Reads a model from `hf_folder`, see ReadHfModel, and makes a checkpoint of it in `folder`, of
/// step 0 and with moments of zero. Refuses a folder that has a checkpoint of step 0. Blocking.
Result<ImportedCheckpoint> ImportCheckpoint(const std::string& hf_folder,
                                            std::optional<std::int64_t> sequence,
                                            const std::string& folder);

}  // namespace adaptive_train
