// Logits, cross-entropy and its gradients as plain loops, one row at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {
namespace {

/// Where each of this rank's groups of the vocabulary ends, counted in its part.
template <class T>
std::vector<std::int64_t> GroupEnds(const HeadLossArguments<T>& x) {
  const VocabularyPart<T>& part = x.part;
  if (part.groups == 0) return {x.vocab};
  std::vector<std::int64_t> ends;
  for (std::int64_t g = 1; g <= part.groups; ++g)
    ends.push_back(GroupBegin(part.whole, part.rank * part.groups + g, part.ranks * part.groups) -
                   part.first);
  return ends;
}

template <class T>
T LogSumExp(std::span<const T> values) {
  if (values.empty()) return -std::numeric_limits<T>::infinity();
  T largest = values[0], sum = 0;
  for (const T value : values) largest = std::max(largest, value);
  for (const T value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

template <class T>
void Logits(const HeadLossArguments<T>& x, const T* input, std::vector<T>& logits) {
  for (std::int64_t v = 0; v < x.vocab; ++v) {
    T sum = x.bias == nullptr ? 0 : x.bias[v];
    for (std::int64_t i = 0; i < x.columns; ++i) sum += input[i] * x.weight[v * x.columns + i];
    logits[static_cast<std::size_t>(v)] = sum;
  }
}

/// The logarithm of the sum of the exponentials of all ranks' logits, from those of the groups. Makes
/// the target's logit that of the rank which has it.
template <class T>
T Combine(const VocabularyPart<T>& part, const std::vector<std::int64_t>& group_ends,
          const std::vector<T>& logits, T& target_logit) {
  const std::size_t groups = group_ends.size();
  std::vector<T> shared(groups * static_cast<std::size_t>(part.ranks) + 1);
  std::int64_t begin = 0;
  for (std::size_t g = 0; g < groups; begin = group_ends[g++])
    shared[static_cast<std::size_t>(part.rank) * groups + g] =
        LogSumExp<T>(std::span(logits).subspan(static_cast<std::size_t>(begin),
                                               static_cast<std::size_t>(group_ends[g] - begin)));
  shared.back() = target_logit;
  if (part.ranks > 1) part.sum(shared);
  target_logit = shared.back();
  return LogSumExp<T>(std::span(shared).first(shared.size() - 1));
}

/// Entries [begin, end).
template <class T>
void AddGradients(const HeadLossArguments<T>& x, std::int64_t begin, std::int64_t end,
                  const T* input, const std::vector<T>& d_logits, T* d_input) {
  for (std::int64_t v = begin; v < end; ++v) {
    const T d_logit = d_logits[static_cast<std::size_t>(v)];
    for (std::int64_t i = 0; i < x.columns; ++i) {
      d_input[i] += d_logit * x.weight[v * x.columns + i];
      x.d_weight[v * x.columns + i] += d_logit * input[i];
    }
    if (x.d_bias != nullptr) x.d_bias[v] += d_logit;
  }
}

/// Each group's d_input is made from zero, and all are added as a tree.
template <class T>
void AddGradients(const HeadLossArguments<T>& x, const std::vector<std::int64_t>& group_ends,
                  const T* input, const std::vector<T>& d_logits, T* d_input) {
  const auto columns = static_cast<std::size_t>(x.columns);
  std::vector<T> places(static_cast<std::size_t>(TreeDepth(std::ssize(group_ends))) * columns);
  const auto at = [&](std::int64_t place) {
    return place == 0 ? d_input : places.data() + (place - 1) * x.columns;
  };
  AddTree(
      0, std::ssize(group_ends), 0,
      [&](std::int64_t group, std::int64_t place) {
        const auto g = static_cast<std::size_t>(group);
        std::fill_n(at(place), columns, T{0});
        AddGradients(x, g == 0 ? 0 : group_ends[g - 1], group_ends[g], input, d_logits, at(place));
      },
      [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t i = 0; i < x.columns; ++i) at(to)[i] += at(from)[i];
      });
}

}  // namespace

template <class T>
void ReferenceDevice<T>::HeadLoss(const HeadLossArguments<T>& x) {
  const std::vector<std::int64_t> group_ends = GroupEnds(x);
  const T scale = static_cast<T>(x.gradient_scale);
  std::vector<T> logits(static_cast<std::size_t>(x.vocab));
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const T* input = x.input + row * x.columns;
    if (x.d_input != nullptr) std::fill_n(x.d_input + row * x.columns, x.columns, T{0});
    x.losses[row] = 0;
    if (x.targets[row] < 0) continue;
    const std::int64_t target = x.targets[row] - x.part.first;
    const bool here = target >= 0 && target < x.vocab;
    Logits(x, input, logits);
    T target_logit = here ? logits[static_cast<std::size_t>(target)] : T{0};
    const T log_sum_exp = Combine(x.part, group_ends, logits, target_logit);
    x.losses[row] = log_sum_exp - target_logit;
    if (x.d_input == nullptr) continue;
    for (T& logit : logits) logit = scale * std::exp(logit - log_sum_exp);
    if (here) logits[static_cast<std::size_t>(target)] -= scale;
    AddGradients(x, group_ends, input, logits, x.d_input + row * x.columns);
  }
}

template void ReferenceDevice<float>::HeadLoss(const HeadLossArguments<float>&);
template void ReferenceDevice<double>::HeadLoss(const HeadLossArguments<double>&);

}  // namespace adaptive_train::kernels::reference
