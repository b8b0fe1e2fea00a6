// Sums of activations over the ranks that share each layer.
#pragma once

#include <span>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "runtime/comm/group.h"
#include "runtime/model/tensor_ranks.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// The rank's tensor group, as its stage sees it. 16-bit activations are added in float32 and
/// rounded once. Waiting is booked as exchange. Throws FatalError. Not thread-safe.
template <class T>
class TensorSums {
 public:
  /// What is passed by reference must outlive this.
  TensorSums(Group& group, kernels::Device<T>& device, StepMeasure& measure)
      : group_(group), device_(device), measure_(measure) {}
  TensorSums(const TensorSums&) = delete;
  TensorSums& operator=(const TensorSums&) = delete;

  TensorPart part() const { return {group_.Rank(), group_.Size()}; }
  /// Sums by this object, which must outlive them.
  TensorRanks<T> Ranks();

 private:
  void Sum(std::span<T> values);
  void SumFloats(std::span<float> values);

  Group& group_;
  kernels::Device<T>& device_;
  StepMeasure& measure_;
  kernels::Buffer<float> sums_;  // of 16-bit values; as large as the largest call
  double waited_s_ = 0;
};

}  // namespace adaptive_train
