// Under which names measured times are kept: the kind of a device, and what of a model the times of
// its layers depend on.
#pragma once

#include <string>

#include "core/cluster.h"
#include "core/model_shape.h"

namespace adaptive_train {

/// "AMD EPYC 9354, 1 thread, 0.56 CPUs": devices of one kind are taken to be equally fast. The CPUs
/// are named where they are fewer than the threads: a quota, or other ranks, slow those down.
std::string DeviceKindName(const Device& device);

/// What the time of one layer depends on besides its device and the micro-batch: dimensions,
/// precision, dropout, and the version of the program. Times are those without recomputation. The
/// number of blocks is not in it: a block takes as long in a deep model as in a shallow one.
std::string ModelKey(const ModelShape& model);

}  // namespace adaptive_train
