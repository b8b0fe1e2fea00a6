// A bucket that is summed whole.
#include "runtime/exchange/bucket_sum.h"

namespace adaptive_train {

template <class T>
Request RingSum<T>::Start(const CollectiveLane& /*lane*/) {
  ReducerState<T>& state = this->state_;
  const GradientBucket& bucket = this->Bucket();
  const std::span<float> gradients = Gradients();
  const auto size = static_cast<std::int64_t>(bucket.size());
  if (this->Kept().holds)
    state.device.AddInto(size, state.residuals.data() + bucket.begin, gradients.data());
  state.counts.selected += size;
  state.counts.added += size;
  if (state.device.OnHost()) return state.group.AllReduce(Purpose::kGradient, gradients);
  on_host_.resize(gradients.size());
  state.device.CopyToHost(on_host_.data(), gradients.data(), gradients.size_bytes());
  return state.group.AllReduce(Purpose::kGradient, std::span(on_host_));
}

template <class T>
void RingSum<T>::Arrive() {
  if (on_host_.empty()) return;
  const std::span<float> gradients = Gradients();
  this->state_.device.CopyFromHost(gradients.data(), on_host_.data(), gradients.size_bytes());
  on_host_ = {};
}

template <class T>
void RingSum<T>::Settle() {
  if (!this->Kept().holds) return;
  const GradientBucket& bucket = this->Bucket();
  this->state_.device.Clear(this->state_.residuals.data() + bucket.begin,
                            bucket.size() * sizeof(float));
  this->Kept().holds = false;
}

template class RingSum<float>;
template class RingSum<kernels::BFloat16>;
template class RingSum<kernels::Float16>;

}  // namespace adaptive_train
