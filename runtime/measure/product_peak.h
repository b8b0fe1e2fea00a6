// What a device really reaches on a matrix product: the yardstick of MFU.
#pragma once

#include "kernels/device.h"

namespace adaptive_train {

/// FLOP/s of the fastest of several float32 products large enough to be bound by arithmetic. Takes
/// about 50 ms of the device's time, in the conditions of the moment (quotas and neighbours
/// included).
double MeasureProductPeak(kernels::Device<float>& device);

}  // namespace adaptive_train
