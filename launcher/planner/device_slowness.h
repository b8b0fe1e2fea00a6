// Decides whether a node's device is slower or faster than its kind. Only frequent and consistent
// measurements count as proof. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/profile.h"

namespace adaptive_train {

/// A device compared with the median of its kind.
struct Slowness {
  double measured = 1;  // the median's speed divided by its own; 1 if not measured
  double shown = 1;     // `measured`, or 1 if the measurements do not prove a difference
};

/// Devices of one kind count as equally fast until proven otherwise. Proof needs kLeastOccasions
/// measurements of the device. Its distance from the median (of logarithms) must also exceed
/// kSameSpeed and kSureOfSpeed standard errors. The error comes from all measurements of the kind:
/// a few of one device may agree by chance.
Slowness SlownessOf(const Profile& profile, const std::string& kind, const std::string& node);

inline constexpr std::int64_t kLeastOccasions = 2;
inline constexpr double kSureOfSpeed = 4;
/// Devices of one kind whose speeds differ by less get the same share.
inline constexpr double kSameSpeed = 0.15;

}  // namespace adaptive_train
