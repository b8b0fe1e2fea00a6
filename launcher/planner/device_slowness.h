// Whether a node's device is slower or faster than others of its kind: only what was measured often
// and evenly enough shows that. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/profile.h"

namespace adaptive_train {

/// A device against the median of its kind.
struct Slowness {
  double measured = 1;  // the median's speed over its own; 1 where it was not measured
  double shown = 1;     // that, or 1: equally fast as far as the measurements can tell
};

/// Devices of one kind are equally fast unless it is shown that they are not: the device was
/// measured on kLeastOccasions, and its distance from the median (of the logarithms) exceeds
/// kSameSpeed and kSureOfSpeed standard errors. The error comes from the spread of all measurements
/// of that kind together: few of one device alone may agree by chance.
Slowness SlownessOf(const Profile& profile, const std::string& kind, const std::string& node);

inline constexpr std::int64_t kLeastOccasions = 2;
inline constexpr double kSureOfSpeed = 4;
/// Devices of one kind whose speeds differ by less get the same share.
inline constexpr double kSameSpeed = 0.15;

}  // namespace adaptive_train
