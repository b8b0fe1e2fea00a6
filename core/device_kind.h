// The names under which measured times are stored: the kind of a device, and the properties of a
// model that affect the times of its layers.
#pragma once

#include <string>

#include "core/cluster.h"
#include "core/model_shape.h"

namespace adaptive_train {

/// "AMD EPYC 9354, 1 thread, 0.56 CPUs": devices of one kind count as equally fast. The CPUs are
/// given if fewer than the threads, because of a quota or other ranks.
std::string DeviceKindName(const Device& device);

/// What the time of a layer depends on besides device and micro-batch: dimensions, precision,
/// dropout, and the program's version. Times exclude recomputation. The number of blocks is left
/// out: a block takes as long in a deep model as in a shallow one.
std::string ModelKey(const ModelShape& model);

}  // namespace adaptive_train
