#include "runtime/train/tied_embedding.h"

#include <utility>

#include "kernels/allocation_failure.h"
#include "runtime/comm/collective.h"

namespace adaptive_train {

template <class T>
TiedEmbedding<T>::TiedEmbedding(bool tied, Groups& groups, RankState<T>& state,
                                StepMeasure& measure, UnitGradients<T>* units)
    : group_(groups.embedding_head), state_(state), measure_(measure), adds_(units == nullptr) {
  if (!tied || group_.Size() < 2) return;
  has_copy_ = state.layout.Copy() != nullptr;
  matrix_ = state.layout.Find("wte.weight");
  const auto begin = static_cast<std::size_t>(matrix_->offset);
  const auto size = static_cast<std::size_t>(matrix_->count);
  parts_ = units != nullptr ? units->Nodes(begin, begin + size)
                            : std::vector{state.SummedGradients().subspan(begin, size)};
  gradients_.resize(parts_.size());
  weights_copy_ = {state.device, Weights()};
  if (!has_copy_) MakeRoom(size);
  for (const std::span<float> part : parts_) copies_.emplace_back(state.device, part);
}

/// On the first stage, where parts are received.
template <class T>
void TiedEmbedding<T>::MakeRoom(std::size_t size) {
  received_ = kernels::AllocatedFor("the head's gradient of the shared matrix", [&] {
    return kernels::Buffer<float>(state_.device, parts_.size() * size);
  });
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts_[i] = received_.span().subspan(i * size, size);
}

template <class T>
std::vector<float*> TiedEmbedding<T>::HeadsSums() const {
  std::vector<float*> sums;
  if (adds_ || !Active() || has_copy_) return sums;
  for (const std::span<float> part : parts_) sums.push_back(part.data());
  return sums;
}

template <class T>
void TiedEmbedding<T>::WaitForGradient() {
  measure_.As(Activity::kExposedComm, [&] {
    for (Request& part : gradients_) Await(part.Wait(CollectiveDeadline()));
  });
}

template <class T>
std::size_t TiedEmbedding<T>::End() const {
  return matrix_ == nullptr ? 0 : static_cast<std::size_t>(matrix_->offset + matrix_->count);
}

template <class T>
void TiedEmbedding<T>::Begin() {
  if (!Active()) return;
  WaitForGradient();
  if (has_copy_) return;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    gradients_[i] =
        group_.Receive(kLast, Purpose::kGradient, std::as_writable_bytes(copies_[i].Of(parts_[i])));
}

template <class T>
void TiedEmbedding<T>::OnGradients(std::size_t begin, std::size_t end) {
  if (!Active() || end < End() || begin >= End()) return;
  if (has_copy_) {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      gradients_[i] =
          group_.Send(kFirst, Purpose::kGradient, std::as_bytes(copies_[i].Fetch(parts_[i])));
    return;
  }
  WaitForGradient();
  for (std::size_t i = 0; i < parts_.size(); ++i) copies_[i].Store(parts_[i]);
  if (adds_)
    state_.device.AddInto(matrix_->count, received_.data(),
                          state_.SummedGradients().data() + matrix_->offset);
}

template <class T>
std::span<T> TiedEmbedding<T>::Weights() {
  return state_.WritableWeights().subspan(static_cast<std::size_t>(matrix_->offset),
                                          static_cast<std::size_t>(matrix_->count));
}

template <class T>
void TiedEmbedding<T>::SendWeights() {
  if (!Active()) return;
  weights_come_ = has_copy_;
  weights_ = has_copy_ ? group_.Receive(kFirst, Purpose::kParameter,
                                        std::as_writable_bytes(weights_copy_.Of(Weights())))
                       : group_.Send(kLast, Purpose::kParameter,
                                     std::as_bytes(weights_copy_.Fetch(Weights())));
}

template <class T>
void TiedEmbedding<T>::WaitForWeights() {
  if (!Active()) return;
  measure_.As(Activity::kExposedComm, [&] { Await(weights_.Wait(CollectiveDeadline())); });
  if (std::exchange(weights_come_, false)) weights_copy_.Store(Weights());
}

template class TiedEmbedding<float>;
template class TiedEmbedding<kernels::BFloat16>;
template class TiedEmbedding<kernels::Float16>;

}  // namespace adaptive_train
