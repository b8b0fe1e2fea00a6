#include "launcher/planner/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "launcher/planner/asked_cuts.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/rates.h"
#include "launcher/planner/stage_room.h"

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

std::vector<std::pair<int, double>> KindsOf(const std::vector<Group>& groups) {
  std::vector<std::pair<int, double>> kinds;
  for (const Group& group : groups) kinds.emplace_back(group.device_class, group.limit);
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

std::vector<int> KindOf(const std::vector<Group>& groups,
                        const std::vector<std::pair<int, double>>& kinds) {
  std::vector<int> kind_of;
  for (const Group& group : groups) {
    const std::pair key{group.device_class, group.limit};
    kind_of.push_back(
        static_cast<int>(std::lower_bound(kinds.begin(), kinds.end(), key) - kinds.begin()));
  }
  return kind_of;
}

/// The classes that may stand behind a group. A group of one device has its own class. The slowest
/// device of a larger group may be slower in total, yet faster in some layers.
std::vector<std::vector<int>> StandsFor(const SearchTables& tables, bool bundled) {
  const auto count = static_cast<int>(tables.Classes().size());
  std::vector<std::vector<int>> classes(Index(count));
  for (int c = 0; c < count; ++c)
    for (int other = 0; other < count; ++other)
      if (other == c || (bundled && tables.Slowness(other) >= tables.Slowness(c)))
        classes[Index(c)].push_back(other);
  return classes;
}

/// The most samples up to `batch` that a replica can do. All its time must be within `all`, and all
/// but the last backward pass, taken as an average one, within `before`.
std::int64_t SamplesWithin(const WholeReplica& replica, std::int64_t batch, double all,
                           double before) {
  std::int64_t can = 0, cannot = batch + 1;
  while (cannot - can > 1) {
    const std::int64_t n = can + (cannot - can) / 2;
    const double mean = static_cast<double>(n) / static_cast<double>(replica.Batches(n));
    const double seconds = replica.Seconds(n);
    const double last = replica.backward_fixed + replica.backward_per_sample * mean;
    (seconds <= all && seconds - last <= before ? can : cannot) = n;
  }
  return can;
}

/// No link makes backward a larger share of the time of sums over tensor ranks.
double MostBackward(const RangeSums& sums, double samples, int ranks) {
  const auto share = [](double forward, double backward) {
    return backward > 0 ? backward / (forward + backward) : 0;
  };
  const auto bytes = [&](const RankSums& of) { return of.bytes + ranks * of.bytes_per_rank; };
  return std::max(share(sums.forward.count.At(samples), sums.backward.count.At(samples)),
                  share(bytes(sums.forward), bytes(sums.backward)));
}

}  // namespace

ShapeBound::ShapeBound(SearchTables& tables, const std::vector<Group>& groups)
    : tables_(tables),
      groups_(groups),
      class_count_(tables.Classes().size()),
      stands_for_(StandsFor(tables, groups.front().devices.size() > 1)),
      kinds_(KindsOf(groups)),
      levels_(tables.Problem().links, groups, KindOf(groups, kinds_),
              static_cast<int>(kinds_.size())) {
  inside_.latency_s = kInfinity;
  kind_count_.resize(kinds_.size());
  for (const int kind : KindOf(groups, kinds_)) ++kind_count_[Index(kind)];
  for (const Group& group : groups) {
    ++class_count_[Index(group.device_class)];
    limits_.push_back(group.limit);
    const LinkSpeed& own = tables.Problem().links.At(group.node, group.node);
    inside_.latency_s = std::min(inside_.latency_s, own.latency_s);
    inside_.bytes_per_second = std::max(inside_.bytes_per_second, own.bytes_per_second);
  }
  least_boundary_ = kInfinity;
  for (int l = 0; l + 1 < tables.Layers(); ++l)
    least_boundary_ = std::min(least_boundary_, tables.Problem().layers[Index(l)].boundary_bytes);
  std::sort(limits_.rbegin(), limits_.rend());
  std::partial_sum(limits_.begin(), limits_.end(), limits_.begin());
}

std::vector<std::vector<double>> ShapeBound::LayerTimes(const Shape& shape) const {
  const LayerSums& sums = tables_.Sums(shape.tensor, shape.recompute);
  const auto b = static_cast<double>(shape.micro_batch);
  std::vector<std::vector<double>> times;
  for (const auto& classes : stands_for_) {
    std::vector<double>& own = times.emplace_back(tables_.Layers(), kInfinity);
    for (const int c : classes) {
      const DeviceClass& known = tables_.Classes()[Index(c)];
      for (int l = 0; l < tables_.Layers(); ++l) {
        const RangeSeconds lines = sums.Seconds(known.kind, l, l + 1);
        const RangeSums talk = sums.Sums(l, l + 1);
        own[Index(l)] =
            std::min(own[Index(l)], (lines.forward.At(b) + lines.backward.At(b)) / known.standing +
                                        talk.forward.Seconds(shape.tensor, inside_).At(b) +
                                        talk.backward.Seconds(shape.tensor, inside_).At(b));
      }
    }
  }
  return times;
}

const ShapeBound::Work& ShapeBound::WorkOf(const Shape& shape) {
  const std::tuple key{shape.recompute, shape.micro_batch};
  if (auto known = work_.find(key); known != work_.end()) return known->second;
  Work& work = work_[key];
  const auto times = LayerTimes(shape);
  const LayerSums& sums = tables_.Sums(shape.tensor, shape.recompute);
  const auto b = static_cast<double>(shape.micro_batch);
  const std::vector<double> prices = FairPrices(times, class_count_);
  work.rates = RatesOf(times, prices);
  const std::vector<int> asked = AskedCuts(tables_.Problem(), shape.stages);
  for (std::size_t s = 0; s + 1 < asked.size(); ++s) {
    std::vector<double>& rates = work.asked_rates.emplace_back();
    for (const std::vector<double>& own : times)
      rates.push_back(1 / std::accumulate(own.begin() + asked[s], own.begin() + asked[s + 1], 0.0));
  }
  work.prices.push_back(0);
  const double all = std::accumulate(prices.begin(), prices.end(), 0.0);
  for (double price : prices) work.prices.push_back(work.prices.back() + price / all);
  for (int l = 0; l < tables_.Layers(); ++l) {
    double least = kInfinity;
    for (std::size_t c = 0; c < times.size(); ++c)
      if (class_count_[c] > 0) least = std::min(least, times[c][Index(l)]);
    work.shortest += least;
    for (const DeviceClass& known : tables_.Classes()) {
      const RangeSeconds lines = sums.Seconds(known.kind, l, l + 1);
      const double both = lines.forward.At(b) + lines.backward.At(b);
      if (both > 0)
        work.backward_share = std::max(work.backward_share, lines.backward.At(b) / both);
    }
  }
  // Sums over tensor ranks may take long.
  for (int l = 0; l < tables_.Layers(); ++l)
    work.backward_share =
        std::max(work.backward_share, MostBackward(sums.Sums(l, l + 1), b, shape.tensor));
  return work;
}

ShapeBound::Exchange ShapeBound::ExchangeOf(int members, const RingSpeed& speed) {
  if (members < 2) return {};
  if (speed.bytes_per_second <= 0) return {kInfinity, kInfinity, kInfinity};
  const std::pair key{members, speed.bytes_per_second};
  if (auto known = exchange_.find(key); known != exchange_.end()) return known->second;
  Exchange& exchange = exchange_[key];
  exchange.fixed = RingSeconds(members, speed, 0);
  exchange.shortest = kInfinity;
  for (const ProblemLayer& layer : tables_.Problem().layers) {
    double own = RingSeconds(members, speed, layer.gradient_bytes) - exchange.fixed;
    double first = own;
    if (layer.compressed_bytes > 0) {
      const double sent = RingSeconds(members, speed, layer.compressed_bytes) - exchange.fixed;
      const bool always = tables_.Problem().compress_all;
      exchange.compression += always ? layer.compression_s : 0;
      first = always ? sent : std::min(first, sent);
      own = always ? sent + layer.compression_s : std::min(own, sent + layer.compression_s);
    }
    exchange.all += own;
    exchange.shortest = std::min(exchange.shortest, exchange.fixed + first);
  }
  return exchange;
}

RangeSeconds ShapeBound::WholeLines(const Shape& shape, int device_class) const {
  RangeSeconds least{{kInfinity, kInfinity}, {kInfinity, kInfinity}, kInfinity};
  for (const int c : stands_for_[Index(device_class)]) {
    const DeviceClass& known = tables_.Classes()[Index(c)];
    const RangeSeconds own =
        tables_.Sums(shape.tensor, shape.recompute).Seconds(known.kind, 0, tables_.Layers());
    for (auto [line, other] :
         {std::pair{&least.forward, &own.forward}, std::pair{&least.backward, &own.backward}}) {
      line->fixed = std::min(line->fixed, other->fixed / known.standing);
      line->per_sample = std::min(line->per_sample, other->per_sample / known.standing);
    }
    least.update = std::min(least.update, own.update / known.standing);
  }
  return least;
}

double ShapeBound::LeastUpdate(const ShapeRange& range) const {
  double least = kInfinity;
  for (std::size_t c = 0; c < class_count_.size(); ++c)
    if (class_count_[c] > 0)
      least = std::min(least, WholeLines(range.shape, static_cast<int>(c)).update);
  return least / (range.shape.shard >= 1 ? range.shape.data : 1);
}

bool ShapeBound::FitsTogether(const ShapeRange& range) const {
  const Shape& shape = range.shape;
  const PlanProblem& problem = tables_.Problem();
  const RangeBytes bytes =
      tables_.Sums(shape.tensor, shape.recompute).Bytes(shape, 0, tables_.Layers());
  // A lone stage may put fewer samples into a micro-batch than requested.
  const std::int64_t b = shape.stages == 1 ? 1 : shape.micro_batch;
  double replica = shape.stages * problem.CommonBytes(shape.recompute, b, shape.tensor) +
                   bytes.kept + static_cast<double>(b) * bytes.activations;
  for (int stage = 0; stage < shape.stages; ++stage)
    replica += problem.BoundaryBytes(stage, shape.stages, b, shape.tensor);
  return range.fewest * replica <= limits_[Index(shape.stages * shape.data) - 1] * (1 + 1e-9);
}

double ShapeBound::PipelineSeconds(const ShapeRange& range, const Work& work, double hidden) const {
  const double data = range.shape.data;
  const double batches =
      static_cast<double>(tables_.Problem().global_batch / range.shape.micro_batch);
  const auto supply = FastestOf(work.rates, class_count_, range.shape.stages * range.shape.data);
  double speed = 0;
  for (const auto& [rate, count] : supply) speed += count * rate;
  // Each replica's first micro-batch takes `shortest`; the rest follow at the groups' rates.
  const double loose = (1 - hidden) * work.shortest + std::max(0.0, batches - data) / speed;
  // A lower bound from one micro-batch on the replica whose fastest group is the slowest.
  const double slowest_first = FastestOf(work.rates, class_count_, range.fewest).back().first;
  const double lone = (1 - hidden) / slowest_first;
  // In T seconds a replica does at most 1 + hidden + the sum over its groups of max(0, rate x T -
  // 1) micro-batches. Each group adds a period to the first trip, or is idle.
  return std::max({loose, lone, SecondsToFill(supply, batches - data * (1 + hidden))});
}

double ShapeBound::RoomSeconds(const Shape& shape, const Work& work, double hidden,
                               std::int64_t in_flight) const {
  const LayerSums& sums = tables_.Sums(shape.tensor, shape.recompute);
  std::vector<GroupKind> kinds;
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    GroupKind kind{kinds_[k].first, kinds_[k].second, kind_count_[k], 0, {}};
    kind.rate = work.rates[Index(kind.device_class)];
    for (int s = 0; s < shape.stages; ++s)
      kind.room.push_back(RoomFor(tables_, sums, shape, kind.limit,
                                  std::min<std::int64_t>(in_flight, shape.stages - s),
                                  work.prices));
    kinds.push_back(std::move(kind));
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const GroupKind& a, const GroupKind& b) { return a.limit < b.limit; });
  const double batches = static_cast<double>(tables_.Problem().global_batch / shape.micro_batch);
  double least = kInfinity;
  // Replicas with fewer micro-batches than `in_flight` hold less and do at most that many.
  for (int small = 0; small <= (in_flight > 1 ? shape.data : 0); ++small) {
    const int data = shape.data - small;
    const double rest = batches - small * static_cast<double>(in_flight - 1);
    double seconds = (1 - hidden) * work.shortest;
    if (rest > data)
      seconds += (rest - data) / (data > 0 ? MostRate(kinds, shape.stages, data) : 0);
    if (data == 0 && rest > 0) seconds = kInfinity;
    least = std::min(least, seconds);
  }
  return least;
}

double ShapeBound::RoomSeconds(const Shape& shape, const Work& work, double hidden) const {
  const std::int64_t batches = tables_.Problem().global_batch / shape.micro_batch;
  const std::int64_t half = batches / shape.data / 2;
  double seconds = 0;
  for (std::int64_t in_flight : {std::int64_t{1}, half, std::int64_t{shape.stages}})
    if (in_flight == 1 || (in_flight > 1 && in_flight <= shape.stages))
      seconds = std::max(seconds, RoomSeconds(shape, work, hidden, in_flight));
  return seconds;
}

double ShapeBound::AskedSeconds(const Shape& shape, const Work& work) const {
  const auto batches = static_cast<double>(tables_.Problem().global_batch / shape.micro_batch);
  double most = 0;
  for (const std::vector<double>& rates : work.asked_rates) {
    double speed = 0;
    for (const auto& [rate, count] : FastestOf(rates, class_count_, shape.data))
      speed += count * rate;
    most = std::max(most, batches / speed);
  }
  return most;
}

double ShapeBound::TransferSeconds(const Shape& shape, int data, std::size_t level) const {
  const auto& levels = levels_.Levels();
  const double bytes = static_cast<double>(shape.micro_batch) * least_boundary_;
  const auto seconds = [&](const RingSpeed& link) {
    return 2 * (link.latency_s + bytes / link.bytes_per_second);
  };
  double all = 0;
  int counted = 0;  // hops
  for (std::size_t i = 0; i <= level; ++i) {
    // Links between islands are slower than this level: at best as fast as the level below.
    const int together = levels[i].largest / data;
    const int crossings = (shape.stages + together - 1) / together - 1;
    if (crossings <= counted) continue;
    all += i == 0 ? kInfinity : (crossings - counted) * seconds(levels[i - 1].best);
    counted = crossings;
  }
  return all + (shape.stages - 1 - counted) * seconds(levels.back().best);
}

double ShapeBound::PipelineBound(const ShapeRange& range) {
  const Shape& shape = range.shape;
  const Work& work = WorkOf(shape);
  const double update = LeastUpdate(range) / shape.stages;
  const Exchange best = ExchangeOf(range.fewest, levels_.BestRing(range.fewest));
  const double seen = best.fixed + best.all / shape.stages + update;
  double plain = PipelineSeconds(range, work, 0);
  double shortened = PipelineSeconds(range, work, work.backward_share);
  constexpr std::size_t kCloseLook = 64;  // groups; of more there are too many shapes
  if (range.fewest == shape.data && groups_.size() <= kCloseLook) {
    plain = std::max(plain, RoomSeconds(shape, work, 0));
    shortened = std::max(shortened, RoomSeconds(shape, work, work.backward_share));
  }
  // Some replica takes at least the mean number of micro-batches; they are a round trip / stages
  // apart.
  const double batches = static_cast<double>(tables_.Problem().global_batch / shape.micro_batch);
  const double trips = 1 + std::max(0.0, batches / shape.data - 1) / shape.stages;
  const double asked = AskedSeconds(shape, work);
  double least = kInfinity;
  // One case for each level of the slowest of all stages' rings.
  for (std::size_t i = 0; i < levels_.Levels().size(); ++i) {
    const LinkLevel& level = levels_.Levels()[i];
    if (level.largest < range.fewest) break;
    // A lone replica has no rings: its stages are inside islands of every level.
    if (shape.data == 1 && i + 1 < levels_.Levels().size()) continue;
    const double transfers = TransferSeconds(shape, range.fewest, i);
    const Exchange exchange = ExchangeOf(range.fewest, level.best);
    const double exposed = update + exchange.shortest + exchange.compression / shape.stages;
    least =
        std::min(least, std::max({(work.shortest + transfers) * trips + exposed, asked + exposed,
                                  transfers + plain + exposed, transfers + shortened + seen}));
  }
  return least;
}

std::vector<ShapeBound::WholeKind> ShapeBound::WholeKinds(const Shape& shape,
                                                          const std::vector<int>& members) const {
  const LayerSums& sums = tables_.Sums(shape.tensor, shape.recompute);
  const RangeBytes bytes = sums.Bytes(shape, 0, tables_.Layers());
  const std::int64_t batch = tables_.Problem().global_batch;
  const std::int64_t wanted = shape.micro_batch > 0 ? std::min(shape.micro_batch, batch) : batch;
  const RangeSums talk = sums.Sums(0, tables_.Layers());
  const Line forward_talk = talk.forward.Seconds(shape.tensor, inside_);
  const Line backward_talk = talk.backward.Seconds(shape.tensor, inside_);
  std::vector<WholeKind> kinds;
  for (std::size_t k = 0; k < members.size(); ++k) {
    if (members[k] == 0) continue;
    const std::int64_t fits =
        LargestMicroBatch(tables_.Problem(), bytes, shape, kinds_[k].second, wanted);
    if (fits == 0) continue;
    const RangeSeconds lines = WholeLines(shape, kinds_[k].first);
    WholeReplica replica;
    replica.backward_fixed = lines.backward.fixed + backward_talk.fixed;
    replica.backward_per_sample = lines.backward.per_sample + backward_talk.per_sample;
    replica.fixed = lines.forward.fixed + forward_talk.fixed + replica.backward_fixed;
    replica.per_sample =
        lines.forward.per_sample + forward_talk.per_sample + replica.backward_per_sample;
    // More than `fits` samples are possible with fewer in each micro-batch than requested.
    replica.micro_batch = shape.micro_batch > 0 ? shape.micro_batch : fits;
    kinds.push_back({replica, members[k]});
  }
  return kinds;
}

double ShapeBound::WholeSeconds(const ShapeRange& range, const std::vector<int>& members,
                                const Exchange& exchange) const {
  const std::int64_t batch = tables_.Problem().global_batch;
  const std::vector<WholeKind> kinds = WholeKinds(range.shape, members);
  const auto enough = [&](double seconds) {
    std::vector<std::pair<std::int64_t, int>> can;
    for (const WholeKind& kind : kinds)
      can.emplace_back(
          SamplesWithin(kind.replica, batch, seconds - exchange.shortest - exchange.compression,
                        seconds - exchange.fixed - exchange.all),
          kind.count);
    std::sort(can.rbegin(), can.rend());
    std::int64_t sum = 0;
    int left = range.shape.data;
    for (const auto& [n, count] : can) {
      sum += n * std::min(left, count);
      left -= std::min(left, count);
    }
    return sum >= batch;
  };
  double high = exchange.fixed + exchange.all + exchange.shortest, alone = 0;
  for (const WholeKind& kind : kinds)
    alone = std::max(alone,
                     static_cast<double>(batch) * (kind.replica.fixed + kind.replica.per_sample));
  high = (high + alone) * (1 + 1e-9);  // the same sum in another order
  if (kinds.empty() || !std::isfinite(high) || !enough(high)) return kInfinity;
  double low = 0;
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return low;
}

double ShapeBound::WholeBound(const ShapeRange& range) {
  const double update = LeastUpdate(range);
  if (range.shape.data == 1) {
    std::vector<int> all(kinds_.size(), 1);
    return WholeSeconds(range, all, {}) + update;
  }
  double best = kInfinity;
  std::vector<int> all(kinds_.size());
  if (range.fewest == 1)
    best = WholeSeconds({range.shape, 1}, std::vector<int>(kinds_.size(), 1), {});
  for (const LinkLevel& level : levels_.Levels()) {
    const Exchange exchange = ExchangeOf(std::max(range.fewest, 2), level.best);
    if (exchange.fixed + exchange.all > best) continue;
    for (const Island& island : level.islands)
      if (island.groups >= range.fewest)
        best = std::min(best, WholeSeconds(range, island.members, exchange));
  }
  return best + update;
}

double ShapeBound::Of(const ShapeRange& range) {
  if (!FitsTogether(range)) return kInfinity;
  const double seconds = range.shape.stages == 1 ? WholeBound(range) : PipelineBound(range);
  // Floating point sums may be slightly too large.
  return seconds * (1 - 1e-9);
}

double LowerBound(const PlanProblem& problem) {
  SearchTables tables(problem);
  double bound = kInfinity;
  for (int tensor : TensorChoices(problem)) {
    const auto groups = IdealGroups(tables, tensor);
    if (groups.empty()) continue;
    ShapeBound shapes(tables, groups);
    for (const ShapeRange& range : AllShapes(problem, tensor, groups))
      bound = std::min(bound, shapes.Of(range));
  }
  return bound;
}

}  // namespace adaptive_train
