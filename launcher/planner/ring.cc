#include "launcher/planner/ring.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMaxKnown = 200000;  // rings remembered

/// The value of closed walks over all members, where a walk is worth as much as its worst
/// step(from, to). Dynamic programming over subsets (Held and Karp 1962), starting and ending at
/// member 0. worst[set][last] is indexed by sets of the members 1 to n - 1.
template <class Step>
std::vector<double> WorstSteps(std::size_t n, Step step) {
  const std::size_t others = n - 1, sets = std::size_t{1} << others;
  std::vector<double> worst(sets * others, -kInfinity);
  for (std::size_t i = 0; i < others; ++i)
    worst[(std::size_t{1} << i) * others + i] = step(0, i + 1);
  for (std::size_t set = 1; set < sets; ++set) {
    for (std::size_t last = 0; last < others; ++last) {
      const double so_far = worst[set * others + last];
      if (so_far == -kInfinity) continue;
      for (std::size_t next = 0; next < others; ++next) {
        if (set >> next & 1) continue;
        double& best = worst[(set | std::size_t{1} << next) * others + next];
        best = std::max(best, std::min(so_far, step(last + 1, next + 1)));
      }
    }
  }
  return worst;
}

/// The best walk's value, and the walk if requested.
template <class Step>
double BestWalk(std::size_t n, Step step, std::vector<int>* order) {
  const std::size_t others = n - 1;
  const auto worst = WorstSteps(n, step);
  std::size_t set = (std::size_t{1} << others) - 1, last = 0;
  double best = -kInfinity;
  for (std::size_t i = 0; i < others; ++i) {
    const double value = std::min(worst[set * others + i], step(i + 1, 0));
    if (value > best) best = value, last = i;
  }
  if (!order) return best;
  std::vector<int> backwards;
  while (true) {
    backwards.push_back(static_cast<int>(last) + 1);
    const std::size_t rest = set & ~(std::size_t{1} << last);
    if (rest == 0) break;
    for (std::size_t i = 0; i < others; ++i) {
      if (!(rest >> i & 1)) continue;
      if (std::min(worst[rest * others + i], step(i + 1, last + 1)) < best) continue;
      set = rest, last = i;
      break;
    }
  }
  order->assign(1, 0);
  order->insert(order->end(), backwards.rbegin(), backwards.rend());
  return best;
}

/// The ring with the highest minimum bandwidth; among those, the lowest maximum latency.
std::vector<int> ExactOrder(const LinkTable& links, std::span<const int> nodes) {
  const auto link = [&](std::size_t from, std::size_t to) -> const LinkSpeed& {
    return links.At(nodes[from], nodes[to]);
  };
  const double bandwidth = BestWalk(
      nodes.size(), [&](std::size_t a, std::size_t b) { return link(a, b).bytes_per_second; },
      nullptr);
  std::vector<int> order;
  BestWalk(
      nodes.size(),
      [&](std::size_t a, std::size_t b) {
        return link(a, b).bytes_per_second < bandwidth ? -1e300 : -link(a, b).latency_s;
      },
      &order);
  return order;
}

struct Edge {
  double bandwidth, latency;
  int a, b;
};

/// A closed tour of the given nodes, built from the fastest links first. Each node has at most two
/// links, and no cycle closes before the last link.
std::vector<int> GreedyTour(const LinkTable& links, std::span<const int> nodes) {
  const auto n = static_cast<int>(nodes.size());
  std::vector<Edge> edges;
  for (int a = 0; a < n; ++a) {
    for (int b = a + 1; b < n; ++b) {
      const LinkSpeed& there =
          links.At(nodes[static_cast<std::size_t>(a)], nodes[static_cast<std::size_t>(b)]);
      const LinkSpeed& back =
          links.At(nodes[static_cast<std::size_t>(b)], nodes[static_cast<std::size_t>(a)]);
      edges.push_back({std::min(there.bytes_per_second, back.bytes_per_second),
                       std::max(there.latency_s, back.latency_s), a, b});
    }
  }
  std::stable_sort(edges.begin(), edges.end(), [](const Edge& x, const Edge& y) {
    return x.bandwidth != y.bandwidth ? x.bandwidth > y.bandwidth : x.latency < y.latency;
  });
  std::vector<int> group(static_cast<std::size_t>(n));
  std::iota(group.begin(), group.end(), 0);
  const auto root = [&](int i) {
    while (group[static_cast<std::size_t>(i)] != i)
      i = group[static_cast<std::size_t>(i)] =
          group[static_cast<std::size_t>(group[static_cast<std::size_t>(i)])];
    return i;
  };
  std::vector<std::vector<int>> next(static_cast<std::size_t>(n));
  for (const Edge& edge : edges) {
    auto& a = next[static_cast<std::size_t>(edge.a)];
    auto& b = next[static_cast<std::size_t>(edge.b)];
    if (a.size() == 2 || b.size() == 2 || root(edge.a) == root(edge.b)) continue;
    group[static_cast<std::size_t>(root(edge.a))] = root(edge.b);
    a.push_back(edge.b);
    b.push_back(edge.a);
  }
  int at = 0;  // one end of the path
  while (at < n - 1 && next[static_cast<std::size_t>(at)].size() == 2) ++at;
  std::vector<int> tour;
  for (int before = -1; at >= 0;) {
    tour.push_back(at);
    int after = -1;
    for (int candidate : next[static_cast<std::size_t>(at)])
      if (candidate != before) after = candidate;
    before = at;
    at = after;
  }
  return tour;
}

/// Reverses pieces of the tour while that makes its slowest link faster (2-opt).
void Improve(const LinkTable& links, std::span<const int> nodes, std::vector<int>& tour) {
  const std::size_t n = tour.size();
  const auto speed = [&](int a, int b) {
    const int x = nodes[static_cast<std::size_t>(a)], y = nodes[static_cast<std::size_t>(b)];
    return std::min(links.At(x, y).bytes_per_second, links.At(y, x).bytes_per_second);
  };
  for (std::size_t round = 0; round < 2 * n; ++round) {
    std::size_t worst = 0;
    for (std::size_t i = 1; i < n; ++i)
      if (speed(tour[i], tour[(i + 1) % n]) < speed(tour[worst], tour[(worst + 1) % n])) worst = i;
    std::rotate(tour.begin(), tour.begin() + static_cast<std::ptrdiff_t>((worst + 1) % n),
                tour.end());
    const double slowest = speed(tour[n - 1], tour[0]);
    std::size_t best = 0;
    double best_speed = slowest;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      // Links (last, first) and (i, i + 1) become (last, i) and (first, i + 1).
      const double value = std::min(speed(tour[n - 1], tour[i]), speed(tour[0], tour[i + 1]));
      if (value > best_speed) best_speed = value, best = i;
    }
    if (best == 0) return;
    std::reverse(tour.begin(), tour.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

RingFinder::RingFinder(const LinkTable& links) : links_(links) {
  std::vector<int> nodes(links.Nodes());
  std::iota(nodes.begin(), nodes.end(), 0);
  tour_ = GreedyTour(links, nodes);
  if (tour_.size() > 3) Improve(links, nodes, tour_);
  position_.resize(tour_.size());
  for (std::size_t i = 0; i < tour_.size(); ++i)
    position_[static_cast<std::size_t>(tour_[i])] = static_cast<int>(i);
  count_.resize(tour_.size());
  present_.resize((tour_.size() + 63) / 64);
}

std::vector<int> RingFinder::Order(std::span<const int> nodes) {
  std::vector<int> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  if (nodes.size() <= 2) return order;
  if (nodes.size() <= kExactMembers) return ExactOrder(links_, nodes);
  std::vector<int> distinct(nodes.begin(), nodes.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<int> tour(distinct.size());
  std::iota(tour.begin(), tour.end(), 0);
  if (distinct.size() > 2) {
    tour = distinct.size() <= kExactMembers ? ExactOrder(links_, distinct)
                                            : GreedyTour(links_, distinct);
    if (distinct.size() > kExactMembers) Improve(links_, distinct, tour);
  }
  std::vector<int> place(links_.Nodes());
  for (std::size_t i = 0; i < tour.size(); ++i)
    place[static_cast<std::size_t>(distinct[static_cast<std::size_t>(tour[i])])] =
        static_cast<int>(i);
  const auto by_place = [&](const std::vector<int>& at) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return at[static_cast<std::size_t>(nodes[static_cast<std::size_t>(a)])] <
             at[static_cast<std::size_t>(nodes[static_cast<std::size_t>(b)])];
    });
    std::vector<int> visited;
    for (int i : order) visited.push_back(nodes[static_cast<std::size_t>(i)]);
    return SpeedOfRing(links_, visited);
  };
  // Never returns a worse order than the one whose speed Speed reported.
  const RingSpeed own = by_place(place), common = TourSpeed(nodes);
  if (own.bytes_per_second < common.bytes_per_second) by_place(position_);
  return order;
}

/// The planner's most frequent query on large clusters, so members are sorted by a bitmap of the
/// tour.
RingSpeed RingFinder::TourSpeed(std::span<const int> nodes) {
  sorted_.clear();
  for (int node : nodes) {
    const auto position = static_cast<std::size_t>(TourPosition(node));
    ++count_[position];
    present_[position / 64] |= std::uint64_t{1} << (position % 64);
  }
  for (std::size_t word = 0; word < present_.size(); ++word) {
    for (std::uint64_t& bits = present_[word]; bits != 0; bits &= bits - 1) {
      const std::size_t position = 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
      for (; count_[position] > 0; --count_[position]) sorted_.push_back(tour_[position]);
    }
  }
  return SpeedOfRing(links_, sorted_);
}

RingSpeed RingFinder::Speed(std::span<const int> nodes) {
  if (nodes.size() < 2) return {0, kInfinity};
  if (nodes.size() == 2) return SpeedOfRing(links_, nodes);
  if (nodes.size() > kExactMembers) return TourSpeed(nodes);
  std::vector<int> key(nodes.begin(), nodes.end());
  std::sort(key.begin(), key.end());
  if (auto known = known_.find(key); known != known_.end()) return known->second;
  if (known_.size() > kMaxKnown) known_.clear();
  std::vector<int> visited;
  for (int i : ExactOrder(links_, key)) visited.push_back(key[static_cast<std::size_t>(i)]);
  return known_[key] = SpeedOfRing(links_, visited);
}

}  // namespace adaptive_train
