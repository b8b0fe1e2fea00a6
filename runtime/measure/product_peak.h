// The measured peak of a device on a matrix product, the reference of MFU.
#pragma once

#include "kernels/device.h"

namespace adaptive_train {

/// FLOP/s of the fastest of many products that are large enough to be bound by arithmetic. They run
/// in five bursts of 10 ms with pauses, so that a short interruption of the process does not spoil
/// all of them. Quotas and other jobs still count. Blocks for about 0.1 s.
template <class T>
double MeasureProductPeak(kernels::Device<T>& device);

/// The peak after a step of `flops` model FLOPs that took `compute_s` to compute. It is raised if
/// the step was faster than any product so far, so that MFU does not exceed 1.
double RaisedPeak(double peak, double flops, double compute_s);

}  // namespace adaptive_train
