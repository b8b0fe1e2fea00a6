// The request of `adaptive-train eval` to a worker, and the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/model_shape.h"
#include "core/result.h"

namespace adaptive_train {

/// Asks for a model's loss on a text.
struct EvaluationRequest {
  ModelDims dims;
  std::string checkpoint;       // a checkpoint's folder
  std::string data;             // path, see data.train
  std::string format = "auto";  // see data.format
  std::int64_t text_vocab = 0;  // tokens that the text may use
  std::int64_t samples = 0;     // windows of the text from its start; 0: all
  std::int64_t batch = 1;       // windows at a time
  std::int64_t threads = 1;
  std::int64_t seed = 0;  // of the masks of a masked model
};

struct Evaluation {
  double loss = 0;             // nats per target, mean
  double unigram_entropy = 0;  // of the text, nats per token
  std::int64_t targets = 0;
  std::int64_t samples = 0;
  double seconds = 0;
  std::string data;    // the detected format of the data
  std::string device;  // the device that computed

  double Perplexity() const;
};

std::string ToJson(const EvaluationRequest& request);
std::string ToJson(const Evaluation& evaluation);
/// Reads untrusted text. Returned dimensions are valid.
Result<EvaluationRequest> EvaluationRequestFromJson(std::string_view text);
Result<Evaluation> EvaluationFromJson(std::string_view text);

}  // namespace adaptive_train
