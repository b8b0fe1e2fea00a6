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
  if (state.group.Size() == 1) return {};
  copy_ = {state.device, gradients};
  return state.group.AllReduce(Purpose::kGradient, copy_.Fetch());
}

template <class T>
void RingSum<T>::Arrive() {
  copy_.Store();
  copy_ = {};
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
