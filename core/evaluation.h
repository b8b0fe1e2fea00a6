// What `adaptive-train eval` asks a worker to compute, and the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/model_shape.h"
#include "core/result.h"

namespace adaptive_train {

/// A model's loss on a text that it may never have seen.
struct EvaluationRequest {
  ModelDims dims;
  std::string checkpoint;       // the folder of one
  std::string data;             // path, see data.train
  std::string format = "auto";  // see data.format
  std::int64_t text_vocab = 0;  // tokens that the text may use
  std::int64_t samples = 0;     // windows of the text from its beginning; 0: all
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
  std::string data;    // what the data was taken for
  std::string device;  // what computed

  double Perplexity() const;
};

std::string ToJson(const EvaluationRequest& request);
std::string ToJson(const Evaluation& evaluation);
/// Untrusted text; dimensions that come back are possible ones.
Result<EvaluationRequest> EvaluationRequestFromJson(std::string_view text);
Result<Evaluation> EvaluationFromJson(std::string_view text);

}  // namespace adaptive_train
