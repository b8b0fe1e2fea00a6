#include "launcher/planner/cuts.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "launcher/planner/asked_cuts.h"
#include "launcher/planner/layout.h"

namespace adaptive_train {
namespace {

/// The limits of a stage.
struct Limits {
  double seconds = 0;   // of a micro-batch
  double exchange = 0;  // seconds of the gradients' exchange that are not hidden
};

class Cutter {
 public:
  Cutter(SearchTables& tables, const std::vector<Group>& groups, const Shape& shape,
         const std::vector<int>& places)
      : tables_(tables), shape_(shape), sums_(tables.Sums(shape.tensor, shape.recompute)) {
    const std::size_t classes = tables.Classes().size();
    members_.assign(static_cast<std::size_t>(shape.stages) * classes, 0);
    limit_.assign(static_cast<std::size_t>(shape.stages), std::numeric_limits<double>::infinity());
    for (std::size_t place = 0; place < places.size(); ++place) {
      const Group& group = groups[static_cast<std::size_t>(places[place])];
      const std::size_t stage = place / static_cast<std::size_t>(shape.data);
      members_[stage * classes + static_cast<std::size_t>(group.device_class)] += 1;
      limit_[stage] = std::min(limit_[stage], group.limit);
    }
    common_ = tables.Problem().CommonBytes(shape.recompute, shape.micro_batch, shape.tensor);
    const std::int64_t batches = tables.Problem().global_batch / shape.micro_batch;
    at_once_ = (batches + shape.data - 1) / shape.data;
    SetRings(groups, places);
    SetGradients();
  }

  /// The number of micro-batches of the replica with most.
  std::int64_t MicroBatches() const { return at_once_; }

  /// Seconds of the stage's replicas together for a micro-batch of these layers: the harmonic mean,
  /// since slow ones can get fewer.
  double Seconds(int stage, int begin, int end) const {
    const std::size_t classes = tables_.Classes().size();
    double rate = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      const double members = members_[static_cast<std::size_t>(stage) * classes + c];
      if (members == 0) continue;
      const DeviceClass& known = tables_.Classes()[c];
      const RangeSeconds lines = sums_.Seconds(known.kind, begin, end);
      const auto b = static_cast<double>(shape_.micro_batch);
      rate += members * known.standing / (lines.forward.At(b) + lines.backward.At(b));
    }
    return shape_.data / rate;
  }

  bool Fits(int stage, int begin, int end) const {
    const RangeBytes bytes = sums_.Bytes(shape_, begin, end);
    const double boundary =
        tables_.Problem().BoundaryBytes(stage, shape_.stages, shape_.micro_batch, shape_.tensor);
    const auto held = static_cast<double>(
        std::min<std::int64_t>(at_once_, static_cast<std::int64_t>(shape_.stages - stage)));
    return common_ + boundary + bytes.kept +
               static_cast<double>(shape_.micro_batch) * held * bytes.activations <=
           limit_[static_cast<std::size_t>(stage)];
  }

  /// E of docs/planning.md and what slows the last backward, as if every stage compressed the
  /// layers that the slowest one compresses.
  double Exchange(int stage, int begin, int end) const {
    if (shape_.data == 1) return 0;
    const std::size_t classes = tables_.Classes().size();
    double hidden = std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < classes; ++c) {
      if (members_[static_cast<std::size_t>(stage) * classes + c] == 0) continue;
      const DeviceClass& known = tables_.Classes()[c];
      const Line backward = sums_.Seconds(known.kind, begin, end).backward;
      hidden =
          std::min(hidden, backward.At(static_cast<double>(shape_.micro_batch)) / known.standing);
    }
    const RingSpeed& ring = rings_[static_cast<std::size_t>(stage)];
    return std::max(RingSeconds(shape_.data, ring, Between(sent_, begin, end)) - hidden,
                    RingSeconds(shape_.data, ring, Between(sent_, begin, begin + 1)) +
                        SlowingSeconds(shape_.data, ring, Between(sent_, begin + 1, end))) +
           Between(compression_, begin, end);
  }

  double Exchange(const std::vector<int>& cut) const {
    double most = 0;
    for (int s = 0; s < shape_.stages; ++s)
      most = std::max(most, Exchange(s, cut[static_cast<std::size_t>(s)],
                                     cut[static_cast<std::size_t>(s) + 1]));
    return most;
  }

  /// The exchange of the most expensive single layer: no cuts have less.
  double LeastExchange() const {
    double most = 0;
    for (int l = 0; l < tables_.Layers(); ++l) {
      double least = std::numeric_limits<double>::infinity();
      for (int s = 0; s < shape_.stages; ++s) least = std::min(least, Exchange(s, l, l + 1));
      most = std::max(most, least);
    }
    return most;
  }

  /// Cuts with each stage within the limits; empty if there are none.
  std::vector<int> Within(const Limits& limits) const {
    const int layers = tables_.Layers();
    std::vector<int> cut{0};
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const int begin = cut.back(), most = layers - (shape_.stages - stage - 1);
      int reach = begin, beyond = most + 1;
      while (beyond - reach > 1) {
        const int middle = reach + (beyond - reach) / 2;
        const bool within = Fits(stage, begin, middle) &&
                            Seconds(stage, begin, middle) <= limits.seconds &&
                            (limits.exchange == std::numeric_limits<double>::infinity() ||
                             Exchange(stage, begin, middle) <= limits.exchange);
        (within ? reach : beyond) = middle;
      }
      if (reach == begin) return {};
      cut.push_back(reach);
    }
    if (cut.back() < layers) return {};
    return cut;
  }

 private:
  static double Between(const std::vector<double>& sums, int begin, int end) {
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(begin)];
  }

  void SetRings(const std::vector<Group>& groups, const std::vector<int>& places) {
    if (shape_.data == 1) return;
    std::vector<int> nodes(static_cast<std::size_t>(shape_.data));
    for (auto first = places.begin(); first != places.end(); first += shape_.data) {
      std::transform(first, first + shape_.data, nodes.begin(),
                     [&](int g) { return groups[static_cast<std::size_t>(g)].node; });
      RingSpeed& ring = rings_.emplace_back(tables_.Rings().Speed(nodes));
      std::for_each(first, first + shape_.data, [&](int g) {
        const int its = groups[static_cast<std::size_t>(g)].device_class;
        ring.transfer_s_per_byte =
            std::max(ring.transfer_s_per_byte, tables_.TransferPerByte(its) / shape_.tensor);
      });
    }
  }

  void SetGradients() {
    sent_.push_back(0);
    compression_.push_back(0);
    RingSpeed slowest{0, std::numeric_limits<double>::infinity()};
    for (const RingSpeed& ring : rings_) {
      slowest.latency_s = std::max(slowest.latency_s, ring.latency_s);
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, ring.bytes_per_second);
      slowest.transfer_s_per_byte = std::max(slowest.transfer_s_per_byte, ring.transfer_s_per_byte);
    }
    for (int l = 0; l < tables_.Layers(); ++l) {
      const ProblemLayer& layer = tables_.Problem().layers[static_cast<std::size_t>(l)];
      const bool compressed = shape_.data > 1 && layer.compressed_bytes > 0 &&
                              Compresses(tables_.Problem(), l, shape_.data, slowest);
      sent_.push_back(sent_.back() + (compressed ? layer.compressed_bytes : layer.gradient_bytes));
      compression_.push_back(compression_.back() + (compressed ? layer.compression_s : 0));
    }
  }

  SearchTables& tables_;
  const Shape& shape_;
  const LayerSums& sums_;
  std::vector<double> members_;             // index = stage x classes + class
  std::vector<double> limit_;               // index = stage; bytes
  std::vector<RingSpeed> rings_;            // index = stage; none for one replica
  std::vector<double> sent_, compression_;  // running sums over layers: bytes, seconds
  double common_ = 0;
  std::int64_t at_once_ = 1;
};

/// Cuts with the least `part` within the limits, by bisection between `low` and `high`, the value
/// of `best`. Returns `best` if there are no others.
std::vector<int> Least(const Cutter& cutter, Limits limits, double Limits::*part, double low,
                       double high, std::vector<int> best) {
  constexpr int kHalvings = 24;
  for (int i = 0; i < kHalvings && high > low * (1 + 1e-6); ++i) {
    const double middle = limits.*part = (low + high) / 2;
    if (auto cut = cutter.Within(limits); cut.empty()) {
      low = middle;
    } else {
      best = std::move(cut);
      high = middle;
    }
  }
  return best;
}

/// Returns `cut`, in which no stage takes more than `seconds`, or cuts with busier stages and less
/// exchange if these are expected to make a step shorter.
std::vector<int> LessExchange(const Cutter& cutter, double seconds, std::vector<int> cut) {
  const double more = static_cast<double>(cutter.MicroBatches() - 1);
  const double least = cutter.LeastExchange();
  double exchange = cutter.Exchange(cut), best = more * seconds + exchange;
  for (const double busier : {1.05, 1.15, 1.3, 1.5, 2.0, 3.0}) {
    const double each = busier * seconds;
    if (more * each + least >= best * (1 - 1e-6)) break;
    auto other = Least(cutter, {each, exchange}, &Limits::exchange, least, exchange, cut);
    exchange = std::min(exchange, cutter.Exchange(other));
    if (more * each + exchange >= best) continue;
    best = more * each + exchange;
    cut = std::move(other);
  }
  return cut;
}

}  // namespace

std::vector<int> FirstCuts(const PlanProblem& problem, int stages) {
  if (!problem.choices.cut.empty()) return AskedCuts(problem, stages);
  std::vector<int> cut;
  for (int s = 0; s <= stages; ++s)
    cut.push_back(static_cast<int>(std::ssize(problem.layers) * s / stages));
  return cut;
}

std::vector<int> BestCuts(SearchTables& tables, const std::vector<Group>& groups,
                          const Shape& shape, const std::vector<int>& places) {
  if (shape.stages == 1) return {0, tables.Layers()};
  if (auto asked = AskedCuts(tables.Problem(), shape.stages); !asked.empty()) return asked;
  const Cutter cutter(tables, groups, shape, places);
  double high = 0;
  for (int s = 0; s < shape.stages; ++s)
    high = std::max(high, cutter.Seconds(s, 0, tables.Layers()));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  high *= 1 + 1e-9;
  std::vector<int> best = cutter.Within({high, kInfinity});
  if (best.empty()) return best;
  best = Least(cutter, {high, kInfinity}, &Limits::seconds, 0, high, std::move(best));
  double seconds = 0;
  for (int s = 0; s < shape.stages; ++s)
    seconds = std::max(seconds, cutter.Seconds(s, best[static_cast<std::size_t>(s)],
                                               best[static_cast<std::size_t>(s) + 1]));
  return LessExchange(cutter, seconds, std::move(best));
}

}  // namespace adaptive_train
