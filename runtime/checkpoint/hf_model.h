// Whole models in folders as Hugging Face's transformers writes and reads them: config.json and
// safetensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model_shape.h"
#include "core/result.h"

namespace adaptive_train {

/// Writes model.safetensors, then config.json, into `folder`, which is made if it is missing and
/// must not hold a model yet. `parameters` is the whole model's arena. Refuses what their
/// architectures do not have. Holds one tensor in memory at a time. Blocking.
Result<void> WriteHfModel(const std::string& folder, const ModelDims& dims,
                          std::span<const float> parameters);

/// A model read from such a folder.
struct HfModel {
  ModelDims dims;
  std::vector<float> parameters;   // the whole model's arena
  std::vector<std::string> notes;  // what was left out, a line each, for people
};

/// Reads config.json and model.safetensors, or the shards that model.safetensors.index.json names.
/// `sequence` keeps the first so many positions; without it, all of them. Everything is untrusted:
/// errors, one line each, name file and tensor. Blocking.
Result<HfModel> ReadHfModel(const std::string& folder, std::optional<std::int64_t> sequence);

}  // namespace adaptive_train
