// Whether pairs of nodes that are measured at the same time hold up each other.
#pragma once

#include <optional>
#include <span>

namespace adaptive_train {

/// One direction of a link as it was measured beside others.
struct RateInCompany {
  int from = 0, to = 0;  // ranks
  double latency_s = 0;
  double bytes_per_second = 0;
  double spread = 0;
  int pairs = 1;  // of its round
};

/// The direction that is worth measuring once more alone: the one that falls furthest short of what
/// its two ends did with others, for whatever lies between may be shared; where none falls far
/// short, the fastest one, which would be the first to feel what all share. None: no round had two
/// pairs.
std::optional<RateInCompany> WorthMeasuringAlone(std::span<const RateInCompany> rates);

/// Whether a rate alone is higher by more than the measurements' own spread explains.
bool HeldUp(const RateInCompany& in_company, double alone_bytes_per_second, double alone_spread);

}  // namespace adaptive_train
