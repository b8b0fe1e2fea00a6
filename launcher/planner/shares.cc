#include "launcher/planner/shares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace adaptive_train {
namespace {

double SecondsOf(const PipelineReplica& replica, std::int64_t count) {
  return replica.trip + static_cast<double>(count - 1) * replica.period;
}
double SecondsOf(const WholeReplica& replica, std::int64_t count) { return replica.Seconds(count); }

/// The real-valued count that takes `seconds`; it may exceed what the replica can do.
double Reach(const PipelineReplica& replica, double seconds) {
  return 1 + (seconds - replica.trip) / replica.period;
}
double Reach(const WholeReplica& replica, double seconds) {
  return seconds / (replica.per_sample + replica.fixed / static_cast<double>(replica.micro_batch));
}

/// The slope of that count: counts per second.
double Rate(const PipelineReplica& replica) { return 1 / replica.period; }
double Rate(const WholeReplica& replica) {
  return 1 / (replica.per_sample + replica.fixed / static_cast<double>(replica.micro_batch));
}

/// A lower bound of the seconds for `total`, with real-valued counts between 1 and `most`. Newton's
/// method from below on a concave, growing, piecewise linear function.
template <class Replica>
double SecondsFromBelow(std::span<const Replica> replicas, double total) {
  double seconds = 0;
  constexpr int kSteps = 12;
  for (int step = 0; step < kSteps; ++step) {
    double reach = 0, rate = 0;
    for (const Replica& replica : replicas) {
      const double own = Reach(replica, seconds);
      const auto most = static_cast<double>(replica.most);
      reach += std::clamp(own, 1.0, most);
      // A rate that includes counts still below 1 makes the step too short, never too long.
      if (own < most) rate += Rate(replica);
    }
    if (reach >= total * (1 - 1e-12) || rate == 0) break;
    seconds += (total - reach) / rate;
  }
  return seconds;
}

/// A replica with the range of counts from 1 that memory allows without a gap.
struct BoundedReplica : WholeReplica {
  std::int64_t most = 0;
};

template <class Replica>
std::int64_t CountWithin(const Replica& replica, double seconds) {
  auto count = static_cast<std::int64_t>(
      std::clamp(std::floor(Reach(replica, seconds)), 1.0, static_cast<double>(replica.most)));
  while (count > 1 && SecondsOf(replica, count) > seconds) --count;
  return count;
}

template <class Replica>
bool Share(std::span<const Replica> replicas, std::int64_t total,
           std::vector<std::int64_t>& counts) {
  counts.assign(replicas.size(), 1);
  std::int64_t can = 0;
  for (const Replica& replica : replicas) {
    if (replica.most < 1) return false;
    can += std::min(replica.most, total);
  }
  if (can < total || total < static_cast<std::int64_t>(replicas.size())) return false;
  const double seconds = SecondsFromBelow(replicas, static_cast<double>(total));
  std::int64_t left = total;
  for (std::size_t d = 0; d < replicas.size(); ++d)
    left -= counts[d] = CountWithin(replicas[d], seconds);
  // Rounding may have handed out too much: the slowest replicas give it back.
  const auto later = [&](std::size_t a, std::size_t b) {
    return SecondsOf(replicas[a], counts[a] + 1) > SecondsOf(replicas[b], counts[b] + 1);
  };
  for (; left < 0; ++left) {
    std::size_t slowest = replicas.size();
    for (std::size_t d = 0; d < replicas.size(); ++d)
      if (counts[d] > 1 &&
          (slowest == replicas.size() ||
           SecondsOf(replicas[d], counts[d]) > SecondsOf(replicas[slowest], counts[slowest])))
        slowest = d;
    --counts[slowest];
  }
  if (left == 0) return true;
  std::vector<std::size_t> heap;
  for (std::size_t d = 0; d < replicas.size(); ++d)
    if (counts[d] < replicas[d].most) heap.push_back(d);
  std::make_heap(heap.begin(), heap.end(), later);
  while (left > 0) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const std::size_t soonest = heap.back();
    ++counts[soonest];
    --left;
    if (counts[soonest] < replicas[soonest].most)
      std::push_heap(heap.begin(), heap.end(), later);
    else
      heap.pop_back();
  }
  return true;
}

std::vector<BoundedReplica> Bounded(std::span<const WholeReplica> replicas, std::int64_t total) {
  std::vector<BoundedReplica> bounded;
  for (const WholeReplica& replica : replicas)
    bounded.push_back({replica, replica.fits < replica.micro_batch ? replica.fits : total});
  return bounded;
}

constexpr double kMostWork = 1e6;

double Work(std::size_t replicas, std::int64_t total) {
  const auto n = static_cast<double>(total);
  return static_cast<double>(replicas) * n * n / 2;
}

/// Counts with the least maximum of seconds, by dynamic programming over the totals of the first
/// replicas. Memory must allow the counts, and each last backward pass must take at least `hidden`
/// seconds.
bool ShareExactly(std::span<const WholeReplica> replicas, std::int64_t total, double hidden,
                  std::vector<std::int64_t>& counts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto size = static_cast<std::size_t>(total) + 1;
  std::vector<double> least(size, kInfinity), with(size);  // seconds; index = total
  std::vector<std::vector<std::int64_t>> chosen;           // [replica][total]
  least[0] = 0;
  for (const WholeReplica& replica : replicas) {
    std::fill(with.begin(), with.end(), kInfinity);
    chosen.emplace_back(size, 0);
    for (std::int64_t n = 1; n <= total; ++n) {
      if (!replica.Allows(n) || replica.LastBackward(n) < hidden) continue;
      const double own = replica.Seconds(n);
      for (auto sum = static_cast<std::size_t>(n); sum < size; ++sum) {
        const double both = std::max(own, least[sum - static_cast<std::size_t>(n)]);
        if (both < with[sum]) with[sum] = both, chosen.back()[sum] = n;
      }
    }
    std::swap(least, with);
  }
  counts.assign(replicas.size(), 1);
  if (least.back() == kInfinity) return false;
  std::int64_t left = total;
  for (std::size_t d = replicas.size(); d-- > 0; left -= counts[d])
    counts[d] = chosen[d][static_cast<std::size_t>(left)];
  return true;
}

}  // namespace

bool ShareOut(std::span<const PipelineReplica> replicas, std::int64_t total,
              std::vector<std::int64_t>& counts) {
  return Share(replicas, total, counts);
}

bool ShareOut(std::span<const WholeReplica> replicas, std::int64_t total,
              std::vector<std::int64_t>& counts) {
  if (std::all_of(replicas.begin(), replicas.end(),
                  [](const WholeReplica& r) { return r.fits >= r.micro_batch; }))
    return Share<BoundedReplica>(Bounded(replicas, total), total, counts);
  // Memory allows some counts but not all between them. All are tried, or only the lowest range.
  if (Work(replicas.size(), total) <= kMostWork) return ShareExactly(replicas, total, 0, counts);
  return Share<BoundedReplica>(Bounded(replicas, total), total, counts);
}

double ShareBeside(const HiddenExchange& exchange, std::span<const WholeReplica> replicas,
                   std::vector<std::int64_t>& counts) {
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto seconds = [&](const std::vector<std::int64_t>& of) {
    double slowest = 0, hidden = std::numeric_limits<double>::infinity();
    for (std::size_t d = 0; d < replicas.size(); ++d) {
      slowest = std::max(slowest, replicas[d].Seconds(of[d]));
      hidden = std::min(hidden, replicas[d].LastBackward(of[d]));
    }
    return std::pair{slowest + exchange.Seconds(hidden), hidden};
  };
  auto [best, hidden] = seconds(counts);
  std::vector<std::int64_t> other;
  // Repeats with more hidden time, until the exchange is minimal or nothing hides more of it.
  for (double work = Work(replicas.size(), total);
       exchange.all - hidden > exchange.least && work <= kMostWork;
       work += Work(replicas.size(), total)) {
    if (!ShareExactly(replicas, total, hidden * (1 + 1e-12) + 1e-300, other)) break;
    const auto [both, more] = seconds(other);
    hidden = more;
    if (both < best) best = both, counts = other;
  }
  return best;
}

}  // namespace adaptive_train
