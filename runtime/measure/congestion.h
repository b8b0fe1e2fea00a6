// Whether pairs of nodes that are measured at the same time hold up each other.
#pragma once

#include <optional>
#include <span>

namespace adaptive_train {

/// One direction of a link as it was measured beside others.
struct RateInCompany {
  int from = 0, to = 0;  // ranks
  double bytes_per_second = 0;
  double spread = 0;
  int round = 0;
  int pairs = 1;  // of that round
};

/// The direction that is worth measuring once more alone: the one that falls furthest short of what
/// both its ends did with others, for what lies between may be shared, or was busy with something
/// else just then. None: no round had several pairs, or each direction is as fast as its slower
/// end. Where all pairs are held up alike, this does not tell.
std::optional<RateInCompany> WorthMeasuringAlone(std::span<const RateInCompany> rates);

/// Whether a rate alone is higher by more than the measurements' own spread explains.
bool HeldUp(const RateInCompany& in_company, double alone_bytes_per_second, double alone_spread);

}  // namespace adaptive_train
