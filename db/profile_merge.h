// How a figure that was measured again joins the one that is stored.
#pragma once

#include "core/profile.h"

namespace adaptive_train {

/// Two figures of one thing that differ by less than this share are the same: clocks, quotas and
/// neighbours move figures by as much.
inline constexpr double kSameWithin = 0.15;
/// A mean over more measurements would follow a slow change too late.
inline constexpr std::int64_t kMostCount = 20;

/// True if `fresh` differs from the known figure by more than 3 spreads and by more than
/// kSameWithin: the thing has changed.
bool Contradicts(double fresh, double known, double spread);
/// By the product, and by the spreads of both: a figure that wavers contradicts nothing.
bool Contradicts(const DeviceMeasurement& fresh, const DeviceMeasurement& known);

/// Two measurements of one device by one job: their mean, weighted by the counts, with the spread
/// within and between both, however far apart they are.
DeviceMeasurement Joined(const DeviceMeasurement& first, const DeviceMeasurement& second);

// Both of the same thing. Where `fresh` contradicts `known` (a link by its bandwidth, a device by
// its product, a layer by forward and backward together), the fresh one alone; else the mean of
// each figure weighted by the counts, with the spread within and between both. What was not
// measured (0) does not count.
LinkMeasurement Merged(const LinkMeasurement& known, const LinkMeasurement& fresh);
DeviceMeasurement Merged(const DeviceMeasurement& known, const DeviceMeasurement& fresh);
LayerMeasurement Merged(const LayerMeasurement& known, const LayerMeasurement& fresh);

}  // namespace adaptive_train
