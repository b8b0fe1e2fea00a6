// Detects pairs of nodes that slow each other down when measured at the same time.
#pragma once

#include <optional>
#include <span>

namespace adaptive_train {

/// One direction of a link, measured while others were.
struct RateInCompany {
  int from = 0, to = 0;  // ranks
  double bytes_per_second = 0;
  double spread = 0;
  int round = 0;
  int pairs = 1;  // of that round
};

/// The direction worth measuring again alone: the one furthest below what both its ends reached
/// with others. The path between them may be shared, or was busy at the time. None if no round had
/// several pairs, or each direction is as fast as its slower end. Does not detect that all pairs
/// slow each other down equally.
std::optional<RateInCompany> WorthMeasuringAlone(std::span<const RateInCompany> rates);

/// Whether the rate alone is higher by more than the spread of the measurements explains.
bool HeldUp(const RateInCompany& in_company, double alone_bytes_per_second, double alone_spread);

}  // namespace adaptive_train
