// Contract of a language model's last step in one operation, chunk by chunk: logits, softmax,
// cross-entropy and all their gradients.
#pragma once

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// No device keeps the logits of more rows than this at a time.
inline constexpr std::int64_t kHeadLossRows = 512;

/// logits[r, v] = input[r] . weight[v] + bias[v]
/// losses[r] = log(sum over v of exp(logits[r, v])) - logits[r, targets[r]], in nats; 0 where
///             targets[r] < 0
/// Targets lie below vocab. NaN or +infinity in a row's logits makes its loss not finite.
///
/// If d_input is not nullptr, gradients are computed as well. With
///   d_logits[r, v] = gradient_scale * (softmax(logits[r])[v] - (v == targets[r])),
/// which is zero in rows with a negative target:
///   d_input   = d_logits weight (overwritten)
///   d_weight += d_logits^T input
///   d_bias   += sum over rows of d_logits
/// Nothing overlaps.
template <class T>
struct HeadLossArguments {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t vocab = 0;
  const T* input = nullptr;   // [rows, columns]
  const T* weight = nullptr;  // [vocab, columns]
  const T* bias = nullptr;    // [vocab], or nullptr
  const std::int32_t* targets = nullptr;
  Accumulator<T>* losses = nullptr;  // [rows]
  double gradient_scale = 0;
  T* d_input = nullptr;
  Accumulator<T>* d_weight = nullptr;
  Accumulator<T>* d_bias = nullptr;  // nullptr if bias is
};

}  // namespace adaptive_train::kernels
