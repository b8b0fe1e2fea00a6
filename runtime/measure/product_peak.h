// What a device really reaches on a matrix product: the yardstick of MFU.
#pragma once

#include "kernels/device.h"

namespace adaptive_train {

/// FLOP/s of the fastest of many products large enough to be bound by arithmetic, in five bursts of 10
/// ms with pauses between them: what stops the process for a moment does not spoil all of them.
/// Quotas and neighbours count nevertheless. Blocks for about 0.1 s.
template <class T>
double MeasureProductPeak(kernels::Device<T>& device);

/// The peak after a step of so many model FLOPs that took so many seconds to compute: raised where
/// the step was faster than any product so far, so that MFU does not exceed 1.
double RaisedPeak(double peak, double flops, double compute_s);

}  // namespace adaptive_train
