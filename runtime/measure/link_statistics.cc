#include "runtime/measure/link_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace adaptive_train {
namespace {

double LeastSquares(std::span<const Arrival> arrivals) {
  double mean_s = 0, mean_b = 0;
  for (const Arrival& a : arrivals) mean_s += a.seconds, mean_b += a.bytes;
  const auto n = static_cast<double>(arrivals.size());
  mean_s /= n;
  mean_b /= n;
  double both = 0, square = 0;
  for (const Arrival& a : arrivals) {
    both += (a.seconds - mean_s) * (a.bytes - mean_b);
    square += (a.seconds - mean_s) * (a.seconds - mean_s);
  }
  return square > 0 ? both / square : 0;
}

double SpreadOfQuarters(std::span<const Arrival> arrivals) {
  constexpr std::size_t kParts = 4;
  const std::size_t n = arrivals.size();
  if (n < 3 * kParts) return 0;
  double sum = 0, squares = 0;
  for (std::size_t part = 0; part < kParts; ++part) {
    // Compares slopes, not ends: chunks that arrive in twos would look like a varying rate.
    const std::size_t begin = n * part / kParts, end = n * (part + 1) / kParts;
    const double rate = LeastSquares(arrivals.subspan(begin, end - begin));
    sum += rate;
    squares += rate * rate;
  }
  const double mean = sum / kParts;
  if (mean <= 0) return 1;  // arrivals seen all at once say nothing
  const double variance = std::max(0.0, squares / kParts - mean * mean) * kParts / (kParts - 1);
  return std::sqrt(variance) / mean;
}

}  // namespace

LinkSlope SlopeOf(std::span<const Arrival> arrivals) {
  return {LeastSquares(arrivals), SpreadOfQuarters(arrivals)};
}

double BestQuartile(std::vector<double> values) {
  const std::size_t count = std::max<std::size_t>(1, values.size() / 4);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                   values.end());
  return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), 0.0) /
         static_cast<double>(count);
}

LinkSlope Reconciled(const LinkSlope& first, const LinkSlope& second, double agreement) {
  const double larger = std::max(first.bytes_per_second, second.bytes_per_second);
  const double apart = std::abs(first.bytes_per_second - second.bytes_per_second) / larger;
  if (apart <= agreement) {
    return {(first.bytes_per_second + second.bytes_per_second) / 2,
            std::min(first.spread, second.spread)};
  }
  LinkSlope better = first.spread < second.spread ? first : second;
  better.spread = std::max(better.spread, apart);
  return better;
}

}  // namespace adaptive_train
