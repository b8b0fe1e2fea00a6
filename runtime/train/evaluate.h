// A saved model's loss on a text.
#pragma once

#include "core/evaluation.h"
#include "core/result.h"

namespace adaptive_train {

/// Reads the checkpoint's parameters and computes the loss of the text's windows in float32,
/// without dropout. Blocks for as long as that takes. Errors name the file.
Result<Evaluation> Evaluate(const EvaluationRequest& request);

}  // namespace adaptive_train
