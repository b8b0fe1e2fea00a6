#include "launcher/planner/stage_room.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace adaptive_train {
namespace {

/// Rates and how many groups have them, fastest first.
using Supply = std::vector<std::pair<double, int>>;

/// Removes the `n` fastest groups and returns the sum of their rates.
double Take(Supply& supply, int n) {
  double sum = 0;
  for (auto& [rate, count] : supply) {
    const int taken = std::min(n, count);
    sum += rate * taken;
    count -= taken;
    n -= taken;
  }
  return sum;
}

/// The rate if groups of the kinds up to `weakest` fit only stages whose share of the work is
/// within their room.
double RateWithWeak(const std::vector<GroupKind>& kinds, std::size_t weakest, int stages,
                    int data) {
  Supply strong, weak;
  int strong_count = 0;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    (k <= weakest ? weak : strong).emplace_back(kinds[k].rate, kinds[k].count);
    if (k > weakest) strong_count += kinds[k].count;
  }
  std::vector<double> rooms = kinds[weakest].room;
  std::sort(rooms.rbegin(), rooms.rend());
  double best = 0, weak_share = 0;
  for (int open = 0; open <= stages; ++open) {  // stages that weak groups can be in
    if (open > 0) weak_share += rooms[static_cast<std::size_t>(open) - 1];
    const int needed = (stages - open) * data;
    if (needed > strong_count) continue;
    Supply rest = strong;
    std::sort(rest.rbegin(), rest.rend());
    const double strong_rate = Take(rest, needed);
    rest.insert(rest.end(), weak.begin(), weak.end());
    std::sort(rest.rbegin(), rest.rend());
    const double all = strong_rate + Take(rest, open * data);
    best = std::max(best, weak_share < 1 ? std::min(all, strong_rate / (1 - weak_share)) : all);
  }
  return best;
}

}  // namespace

double RoomFor(const SearchTables& tables, const LayerSums& sums, const Shape& shape, double limit,
               std::int64_t in_flight, const std::vector<double>& prices) {
  const double left =
      limit - tables.Problem().CommonBytes(shape.recompute, shape.micro_batch, shape.tensor);
  const auto held = static_cast<double>(shape.micro_batch * in_flight);
  double room = 0;
  for (int begin = 0, end = 0; end < tables.Layers();) {
    const RangeBytes bytes = sums.Bytes(shape, begin, end + 1);
    if (bytes.kept + held * bytes.activations <= left * (1 + 1e-9)) {
      ++end;
      room = std::max(
          room, prices[static_cast<std::size_t>(end)] - prices[static_cast<std::size_t>(begin)]);
    } else {
      ++begin;
      end = std::max(end, begin);
    }
  }
  return room * (1 + 1e-12);
}

double MostRate(const std::vector<GroupKind>& kinds, int stages, int data) {
  double most = std::numeric_limits<double>::infinity();
  for (std::size_t weakest = 0; weakest < kinds.size(); ++weakest)
    most = std::min(most, RateWithWeak(kinds, weakest, stages, data));
  return most;
}

}  // namespace adaptive_train
