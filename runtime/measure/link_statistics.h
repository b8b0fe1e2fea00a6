// Computes the speed of a link from arrival times.
#pragma once

#include <span>
#include <vector>

namespace adaptive_train {

/// Bytes that have arrived by a time; the origin of both is arbitrary.
struct Arrival {
  double seconds = 0;
  double bytes = 0;
};

struct LinkSlope {
  double bytes_per_second = 0;
  double spread = 0;  // relative standard deviation between quarters of the arrivals
};

/// The slope of the least-squares line through the arrivals, at least 2 of them. It covers what
/// happens between the first and the last arrival, without a slow start.
LinkSlope SlopeOf(std::span<const Arrival> arrivals);

/// The mean of the fastest quarter, at least one value: a round trip without disturbance.
double BestQuartile(std::vector<double> values);

/// Combines two measurements of a link in doubt: their mean if they agree within `agreement` of the
/// larger one, else the one with the smaller spread. The resulting spread includes their
/// difference.
LinkSlope Reconciled(const LinkSlope& first, const LinkSlope& second, double agreement);

}  // namespace adaptive_train
