// What the ranks measured of their layers, as a profile keeps it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/control_message.h"
#include "core/plan.h"
#include "core/profile.h"

namespace adaptive_train {

/// One entry for each kind of device, layer and micro-batch: times are means over the ranks of that
/// kind, weighted by what each has measured, and the spread is that of all their measurements;
/// gradient_variance is the mean over all ranks (over all blocks for "block"). `times` has an
/// element for each rank of `plan`; `model` is ModelKey's, `now` UTC seconds since 1970.
std::vector<LayerMeasurement> LayerRecords(const Plan& plan, const std::string& model,
                                           std::span<const LayerTimes> times, double now);

/// How uncertain these times are: the largest relative standard error of a whole block's, over kinds
/// of devices and micro-batches. 0 without a block.
double LayerError(std::span<const LayerMeasurement> records);

/// Relative gradient variance of each layer, mean over the ranks that have measured it; index =
/// ModelShape::layers.
std::vector<double> MeanVariances(std::span<const LayerTimes> times);

}  // namespace adaptive_train
