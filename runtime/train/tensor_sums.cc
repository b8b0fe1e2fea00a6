#include "runtime/train/tensor_sums.h"

#include <chrono>
#include <type_traits>

#include "runtime/train/collective.h"

namespace adaptive_train {

template <class T>
TensorRanks<T> TensorSums<T>::Ranks() {
  return {part(), [this](std::span<T> values) { Sum(values); },
          [this](std::span<float> values) { SumFloats(values); }, &waited_s_};
}

template <class T>
void TensorSums<T>::Sum(std::span<T> values) {
  if constexpr (std::is_same_v<T, float>) {
    SumFloats(values);
  } else {
    if (sums_.size() < values.size()) {
      sums_ = {};  // frees the old memory first
      sums_ = {device_, values.size()};
    }
    const auto count = static_cast<std::int64_t>(values.size());
    device_.Widen(count, values.data(), sums_.data());
    SumFloats(sums_.span().first(values.size()));
    device_.Round({.count = count, .parameters = sums_.data(), .weights = values.data()});
  }
}

template <class T>
void TensorSums<T>::SumFloats(std::span<float> values) {
  const auto from = std::chrono::steady_clock::now();
  measure_.As(Activity::kExposedComm, [&] {
    Await(group_.AllReduce(Purpose::kActivation, values).Wait(CollectiveDeadline()));
  });
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

template class TensorSums<float>;
template class TensorSums<kernels::BFloat16>;
template class TensorSums<kernels::Float16>;

}  // namespace adaptive_train
