// What a device really reaches on a matrix product: the yardstick of MFU.
#pragma once

#include "kernels/device.h"

namespace adaptive_train {

/// FLOP/s of the fastest of several products large enough to be bound by arithmetic. Takes about 50
/// ms of the device's time, in the conditions of the moment (quotas and neighbours included).
template <class T>
double MeasureProductPeak(kernels::Device<T>& device);

}  // namespace adaptive_train
