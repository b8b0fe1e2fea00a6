// Contract of a language model's last step in one operation, chunk by chunk: logits, softmax,
// cross-entropy and all their gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/inner_groups.h"
#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// A vocabulary that several ranks share. Each has entries [first, first + vocab) of it, all have the
/// same rows and targets, and all compute them with the same number of calls of `sum`.
template <class T>
struct VocabularyPart {
  std::int64_t first = 0;
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  /// Not 0: sums over the vocabulary are made in ranks * groups groups, of which this rank has
  /// `groups`, a power of two. Group g of all begins at GroupBegin(whole, g, ranks * groups) of the
  /// whole vocabulary's `whole` entries. Losses and d_input then have the bits of one rank with all
  /// groups, where the ranks' d_input is added as in kernels/inner_groups.h. Only where T is its own
  /// accumulator.
  std::int64_t groups = 0;
  std::int64_t whole = 0;
  /// values[i] becomes the sum of all ranks' values[i], the same bits on each. `values` is in host
  /// memory. Not called where there is one rank.
  std::function<void(std::span<Accumulator<T>> values)> sum;
};

/// A CPU, and ranks that share a vocabulary, keep the logits of so many rows at a time at most.
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
///
/// Of a shared vocabulary, weight, bias and v are this rank's part, and targets count in the whole.
/// Losses are then those of the whole vocabulary on every rank, while d_input is the part of the
/// gradient that comes from this rank's entries: the ranks' sum is the whole.
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
  VocabularyPart<T> part = {};
};

}  // namespace adaptive_train::kernels
