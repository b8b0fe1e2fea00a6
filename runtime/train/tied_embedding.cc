#include "runtime/train/tied_embedding.h"

#include "kernels/allocation_failure.h"
#include "runtime/train/collective.h"

namespace adaptive_train {

template <class T>
TiedEmbedding<T>::TiedEmbedding(bool tied, Groups& groups, RankState<T>& state,
                                StepMeasure& measure)
    : group_(groups.embedding_head), state_(state), measure_(measure) {
  if (!tied || group_.Size() < 2) return;
  has_copy_ = state.layout.Copy() != nullptr;
  matrix_ = state.layout.Find("wte.weight");
  if (has_copy_) return;
  received_ = kernels::AllocatedFor("the head's gradient of the shared matrix", [&] {
    return kernels::Buffer<float>(state.device, static_cast<std::size_t>(matrix_->count));
  });
}

template <class T>
std::size_t TiedEmbedding<T>::End() const {
  return matrix_ == nullptr ? 0 : static_cast<std::size_t>(matrix_->offset + matrix_->count);
}

template <class T>
void TiedEmbedding<T>::Begin() {
  if (!Active()) return;
  measure_.As(Activity::kExposedComm, [&] { Await(gradient_.Wait(CollectiveDeadline())); });
  if (has_copy_) return;
  gradient_ = group_.Receive(kLast, Purpose::kGradient, std::as_writable_bytes(received_.span()));
}

template <class T>
void TiedEmbedding<T>::OnGradients(std::size_t begin, std::size_t end) {
  if (!Active() || end < End() || begin >= End()) return;
  const std::span<float> own = state_.gradients.span().subspan(
      static_cast<std::size_t>(matrix_->offset), static_cast<std::size_t>(matrix_->count));
  if (has_copy_) {
    gradient_ = group_.Send(kFirst, Purpose::kGradient, std::as_bytes(own));
    return;
  }
  measure_.As(Activity::kExposedComm, [&] { Await(gradient_.Wait(CollectiveDeadline())); });
  state_.device.AddInto(matrix_->count, received_.data(), own.data());
}

template <class T>
std::span<std::byte> TiedEmbedding<T>::Weights() {
  const std::span<T> weights = state_.WritableWeights();
  return std::as_writable_bytes(weights.subspan(static_cast<std::size_t>(matrix_->offset),
                                                static_cast<std::size_t>(matrix_->count)));
}

template <class T>
void TiedEmbedding<T>::SendWeights() {
  if (!Active()) return;
  weights_ = has_copy_ ? group_.Receive(kFirst, Purpose::kParameter, Weights())
                       : group_.Send(kLast, Purpose::kParameter, Weights());
}

template <class T>
void TiedEmbedding<T>::WaitForWeights() {
  if (Active())
    measure_.As(Activity::kExposedComm, [&] { Await(weights_.Wait(CollectiveDeadline())); });
}

template class TiedEmbedding<float>;
template class TiedEmbedding<kernels::BFloat16>;
template class TiedEmbedding<kernels::Float16>;

}  // namespace adaptive_train
