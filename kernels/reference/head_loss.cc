// Logits, cross-entropy and its gradients as plain loops, one row at a time.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {
namespace {

template <class T>
T LogSumExp(std::span<const T> values) {
  T largest = values[0], sum = 0;
  for (const T value : values) largest = std::max(largest, value);
  for (const T value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

/// Writes the row's logits; returns the logarithm of the sum of their exponentials.
template <class T>
T Logits(const HeadLossArguments<T>& x, const T* input, std::vector<T>& logits) {
  for (std::int64_t v = 0; v < x.vocab; ++v) {
    T sum = x.bias == nullptr ? 0 : x.bias[v];
    for (std::int64_t i = 0; i < x.columns; ++i) sum += input[i] * x.weight[v * x.columns + i];
    logits[static_cast<std::size_t>(v)] = sum;
  }
  return LogSumExp<T>(logits);
}

/// Makes the logarithm that of all ranks' entries, and the target's logit that of the rank which has
/// it.
template <class T>
void Combine(const VocabularyPart<T>& part, T& log_sum_exp, T& target_logit) {
  if (part.ranks == 1) return;
  std::vector<T> shared(static_cast<std::size_t>(part.ranks + 1));
  shared[static_cast<std::size_t>(part.rank)] = log_sum_exp;
  shared.back() = target_logit;
  part.sum(shared);
  target_logit = shared.back();
  log_sum_exp = LogSumExp<T>(std::span(shared).first(shared.size() - 1));
}

template <class T>
void AddGradients(const HeadLossArguments<T>& x, const T* input, const std::vector<T>& d_logits,
                  T* d_input) {
  for (std::int64_t v = 0; v < x.vocab; ++v) {
    const T d_logit = d_logits[static_cast<std::size_t>(v)];
    for (std::int64_t i = 0; i < x.columns; ++i) {
      d_input[i] += d_logit * x.weight[v * x.columns + i];
      x.d_weight[v * x.columns + i] += d_logit * input[i];
    }
    if (x.d_bias != nullptr) x.d_bias[v] += d_logit;
  }
}

}  // namespace

template <class T>
void ReferenceDevice<T>::HeadLoss(const HeadLossArguments<T>& x) {
  const T scale = static_cast<T>(x.gradient_scale);
  std::vector<T> logits(static_cast<std::size_t>(x.vocab));
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* input = x.input + row * x.columns;
    if (x.d_input != nullptr) std::fill_n(x.d_input + row * x.columns, x.columns, T{0});
    x.losses[row] = 0;
    if (x.targets[row] < 0) continue;
    const std::int64_t target = x.targets[row] - x.part.first;
    const bool here = target >= 0 && target < x.vocab;
    T log_sum_exp = Logits(x, input, logits);
    T target_logit = here ? logits[static_cast<std::size_t>(target)] : T{0};
    Combine(x.part, log_sum_exp, target_logit);
    x.losses[row] = log_sum_exp - target_logit;
    if (x.d_input == nullptr) continue;
    for (T& logit : logits) logit = scale * std::exp(logit - log_sum_exp);
    if (here) logits[static_cast<std::size_t>(target)] -= scale;
    AddGradients(x, input, logits, x.d_input + row * x.columns);
  }
}

template void ReferenceDevice<float>::HeadLoss(const HeadLossArguments<float>&);
template void ReferenceDevice<double>::HeadLoss(const HeadLossArguments<double>&);

}  // namespace adaptive_train::kernels::reference
