// The one place where devices come from.
#pragma once

#include <memory>

#include "core/cluster.h"
#include "core/result.h"
#include "kernels/device.h"

namespace adaptive_train::kernels {

/// What computes for a rank on `device` of the plan, with as many threads as it says. Fails in one
/// line where this program has no such device. For T float, BFloat16 or Float16.
template <class T>
Result<std::unique_ptr<Device<T>>> MakeDevice(const adaptive_train::Device& device);

/// The processor, with so many threads.
template <class T>
std::unique_ptr<Device<T>> MakeCpuDevice(int threads);

}  // namespace adaptive_train::kernels
