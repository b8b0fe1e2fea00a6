// Turns the ranks' measurements of their layers into records of a profile.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/control_message.h"
#include "core/plan.h"
#include "core/profile.h"

namespace adaptive_train {

/// One record for each kind of device, layer and micro-batch. Times are means over the ranks of
/// that kind, weighted by how much each has measured; the spread is over all their measurements.
/// gradient_variance is the mean over all ranks (for "block" also over all blocks). `times` has an
/// element for each rank of `plan`; `model` is ModelKey's; `now` is UTC seconds since 1970.
std::vector<LayerMeasurement> LayerRecords(const Plan& plan, const std::string& model,
                                           std::span<const LayerTimes> times, double now);

/// The uncertainty of these times: the largest relative standard error of a whole block, over kinds
/// of devices and micro-batches. 0 without a block.
double LayerError(std::span<const LayerMeasurement> records);

/// The relative gradient variance of each layer, averaged over the ranks that measured it; index =
/// ModelShape::layers.
std::vector<double> MeanVariances(std::span<const LayerTimes> times);

}  // namespace adaptive_train
