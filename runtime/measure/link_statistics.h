// From arrival times to the speed of a link.
#pragma once

#include <span>
#include <vector>

namespace adaptive_train {

/// Bytes that have arrived by a time; both counted from wherever one likes.
struct Arrival {
  double seconds = 0;
  double bytes = 0;
};

struct LinkSlope {
  double bytes_per_second = 0;
  double spread = 0;  // relative standard deviation between quarters of the arrivals
};

/// The slope of the least-squares line through the arrivals, at least 2 of them. What is sent and
/// received in between the first and last arrival counts, a start at rest does not.
LinkSlope SlopeOf(std::span<const Arrival> arrivals);

/// The mean of the fastest quarter, at least one: what a round trip takes when nothing interferes.
double BestQuartile(std::vector<double> values);

/// Two measurements of one link in doubt: their mean where they agree within `agreement` of the
/// larger one, else the one with the smaller spread. The spread tells of their difference too.
LinkSlope Reconciled(const LinkSlope& first, const LinkSlope& second, double agreement);

}  // namespace adaptive_train
