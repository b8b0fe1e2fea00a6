// Contract of the head's loss: softmax and cross-entropy in one, with the gradient.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels {

/// losses[r] = log(sum over c of exp(logits[r, c])) - logits[r, targets[r]], in nats.
/// d_logits[r, c] = gradient_scale * (softmax(logits[r])[c] - (c == targets[r])), where d_logits is
/// not nullptr; it may be logits. Targets must lie in [0, classes). NaN or +infinity among a row's
/// logits makes its loss not finite.
template <class T>
struct CrossEntropyArguments {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  const T* logits = nullptr;
  const std::int32_t* targets = nullptr;
  T* losses = nullptr;  // [rows]
  double gradient_scale = 0;
  T* d_logits = nullptr;
};

}  // namespace adaptive_train::kernels
