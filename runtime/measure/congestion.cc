#include "runtime/measure/congestion.h"

#include <algorithm>
#include <map>

namespace adaptive_train {
namespace {

/// A direction is suspected below this share of the lower of its ends' best rates.
constexpr double kFarShort = 0.8;
/// A link that shares nothing keeps its rate when measured alone, within this share or three
/// spreads.
constexpr double kSame = 0.25;

}  // namespace

std::optional<RateInCompany> WorthMeasuringAlone(std::span<const RateInCompany> rates) {
  std::map<int, double> best;
  for (const RateInCompany& rate : rates)
    for (const int end : {rate.from, rate.to})
      best[end] = std::max(best[end], rate.bytes_per_second);
  std::optional<RateInCompany> shortest;
  double least = kFarShort;
  for (const RateInCompany& rate : rates) {
    if (rate.pairs < 2 || rate.bytes_per_second <= 0) continue;
    const double share = rate.bytes_per_second / std::min(best[rate.from], best[rate.to]);
    if (share >= least) continue;
    least = share;
    shortest = rate;
  }
  return shortest;
}

bool HeldUp(const RateInCompany& in_company, double alone_bytes_per_second, double alone_spread) {
  const double noise = std::max(kSame, 3 * std::max(in_company.spread, alone_spread));
  return alone_bytes_per_second > (1 + noise) * in_company.bytes_per_second;
}

}  // namespace adaptive_train
