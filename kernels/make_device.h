// The one place where devices come from.
#pragma once

#include <memory>

#include "core/cluster.h"
#include "core/result.h"
#include "kernels/device.h"

namespace adaptive_train::kernels {

/// The device of a rank: `device` of the plan, with the plan's number of threads. Fails in one line
/// if this program has no such device. T is float, BFloat16 or Float16.
template <class T>
Result<std::unique_ptr<Device<T>>> MakeDevice(const adaptive_train::Device& device);

/// The CPU with `threads` threads.
template <class T>
std::unique_ptr<Device<T>> MakeCpuDevice(int threads);

}  // namespace adaptive_train::kernels
