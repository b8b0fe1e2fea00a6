// What a store tells of a link or a device that several users have measured: one figure, which none
// of them can move far.
#pragma once

#include <optional>
#include <vector>

#include "core/profile.h"
#include "db/owner.h"

namespace adaptive_train {

/// From so many users on, each of their figures can be told as a median.
inline constexpr std::size_t kConfirmingUsers = 3;
/// They must have measured within this time. Seconds.
inline constexpr double kReportWindow = kConfidenceHalfLife;
/// A figure that moves by more when a user is left out is disputed.
inline constexpr double kDisputedAbove = 0.05;

/// What one user measured.
template <class Measurement>
struct Report {
  Owner owner = kFileOwner;
  Measurement figure;
};

// Tells `reader` of one thing, at the time `now`, from one report per owner; none from no report.
// Reports of the future have to be kept out before.
//
// - If kConfirmingUsers measured within kReportWindow, each number is a median of theirs by itself, of
//   two in the middle the slower one: nobody moves it beyond what the others measured. The figure is
//   disputed if without one of the users its bandwidth, or its product, would be another by more
//   than kDisputedAbove.
// - Otherwise the reader's own is told as it is, or else such medians of all reports, unconfirmed.
// - What moving messages takes is told from kConfirmingUsers who measured it, or from the reader.
std::optional<LinkMeasurement> Told(std::vector<Report<LinkMeasurement>> reports, Owner reader,
                                    double now);
std::optional<DeviceMeasurement> Told(std::vector<Report<DeviceMeasurement>> reports, Owner reader,
                                      double now);

}  // namespace adaptive_train
