// Merges a new measurement with the stored one.
#pragma once

#include "core/profile.h"

namespace adaptive_train {

/// Two figures for one thing that differ by less than this share count as equal: clocks, quotas and
/// other jobs cause differences of that size.
inline constexpr double kSameWithin = 0.15;
/// A mean over more measurements would follow a slow change too late.
inline constexpr std::int64_t kMostCount = 20;

/// True if `fresh` differs from the known figure by more than 3 spreads and more than kSameWithin:
/// the thing has changed.
bool Contradicts(double fresh, double known, double spread);
/// Compares the product speed, using the spreads of both: a noisy figure contradicts nothing.
bool Contradicts(const DeviceMeasurement& fresh, const DeviceMeasurement& known);

/// Two measurements of one device by one job: their mean weighted by the counts, with the spread
/// within and between both, however far apart they are.
DeviceMeasurement Joined(const DeviceMeasurement& first, const DeviceMeasurement& second);

// Merges two measurements of the same thing. If `fresh` contradicts `known`, it replaces it, as it
// does what is unconfirmed or disputed:
// compared are a link's bandwidth, a device's product, a layer's forward plus backward. Otherwise
// each figure is the mean weighted by the counts, with the spread within and between both. Figures
// that were not measured (0) are ignored.
LinkMeasurement Merged(const LinkMeasurement& known, const LinkMeasurement& fresh);
DeviceMeasurement Merged(const DeviceMeasurement& known, const DeviceMeasurement& fresh);
LayerMeasurement Merged(const LayerMeasurement& known, const LayerMeasurement& fresh);

}  // namespace adaptive_train
