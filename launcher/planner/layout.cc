#include "launcher/planner/layout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/schedule/play.h"

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Seconds of a chunk's layers on one device kind, as lines over the micro-batch's samples.
struct StageLines {
  Line forward, backward, weight_gradients;
  double update = 0;
};

void Add(Line& sum, const Line& more, double factor) {
  sum.fixed += factor * more.fixed;
  sum.per_sample += factor * more.per_sample;
}

StageLines LinesOf(const PlanProblem& problem, const Layout& layout, int chunk, std::size_t kind) {
  StageLines lines;
  const double again = problem.recompute_share[static_cast<std::size_t>(layout.recompute)];
  for (int l = layout.cut[static_cast<std::size_t>(chunk)];
       l < layout.cut[static_cast<std::size_t>(chunk) + 1]; ++l) {
    const auto index = static_cast<std::size_t>(l);
    const LayerSeconds& seconds = problem.kinds[kind].layers[index];
    const double part = problem.layers[index].PartOfWork(layout.tensor);
    Add(lines.forward, seconds.forward, part);
    Add(lines.backward, seconds.backward, part);
    Add(lines.backward, seconds.forward, part * again);
    Add(lines.weight_gradients, seconds.weight_gradients, part);
    lines.update += problem.layers[index].PartOfParameters(layout.tensor) * seconds.update /
                    (layout.shard >= 1 ? layout.data : 1);
  }
  return lines;
}

/// Seconds of the sums over tensor ranks in a chunk's passes.
struct TensorLines {
  Line forward, backward;
};

TensorLines TensorLinesOf(const PlanProblem& problem, const Layout& layout, int chunk, int node) {
  RankSums forward, backward;
  for (int l = layout.cut[static_cast<std::size_t>(chunk)];
       l < layout.cut[static_cast<std::size_t>(chunk) + 1]; ++l) {
    const ProblemLayer& layer = problem.layers[static_cast<std::size_t>(l)];
    forward += layer.ForwardSums(layout.tensor);
    backward += layer.BackwardSums(static_cast<std::size_t>(layout.recompute), layout.tensor);
  }
  const LinkSpeed& link = problem.links.At(node, node);
  return {forward.Seconds(layout.tensor, link), backward.Seconds(layout.tensor, link)};
}

/// All times that CostOf needs, computed once per chunk and kind.
class Times {
 public:
  Times(const PlanProblem& problem, const Layout& layout) : problem_(problem), layout_(layout) {
    for (int c = 0; c < layout.Chunks(); ++c) {
      for (std::size_t k = 0; k < problem.kinds.size(); ++k)
        lines_.push_back(LinesOf(problem, layout, c, k));
      const std::size_t nodes = layout.tensor > 1 ? problem.links.Nodes() : 0;
      for (std::size_t n = 0; n < nodes; ++n)
        tensor_.push_back(TensorLinesOf(problem, layout, c, static_cast<int>(n)));
    }
  }

  double Forward(int chunk, int replica, double samples) const {
    return Slowest(chunk, replica,
                   [&](const StageLines& lines) { return lines.forward.At(samples); }) +
           Tensor(chunk, replica).forward.At(samples) + Moving(chunk, replica, samples);
  }
  double Backward(int chunk, int replica, double samples) const {
    return Slowest(chunk, replica,
                   [&](const StageLines& lines) { return lines.backward.At(samples); }) +
           Tensor(chunk, replica).backward.At(samples) + Moving(chunk, replica, samples);
  }
  double WeightGradients(int chunk, int replica, double samples) const {
    return Slowest(chunk, replica,
                   [&](const StageLines& lines) { return lines.weight_gradients.At(samples); });
  }
  double Both(int chunk, int replica, double samples) const {
    return Forward(chunk, replica, samples) + Backward(chunk, replica, samples);
  }
  /// Of all chunks of a stage.
  double BackwardOfStage(int stage, int replica, double samples) const {
    return OfStage(stage, [&](int chunk) { return Backward(chunk, replica, samples); });
  }
  double UpdateOfStage(int stage, int replica) const {
    return OfStage(stage, [&](int chunk) {
      return Slowest(chunk, replica, [](const StageLines& lines) { return lines.update; });
    });
  }
  /// All that ranks compute, without what they wait for.
  PlaceSeconds OfPlace(int stage, int replica) const {
    const auto both = [&](double samples) {
      return OfStage(stage, [&](int chunk) {
        return Slowest(chunk, replica, [&](const StageLines& lines) {
          return lines.forward.At(samples) + lines.backward.At(samples);
        });
      });
    };
    return {{both(0), both(1) - both(0)}, UpdateOfStage(stage, replica)};
  }
  /// Of what one pass sends and receives.
  double Moving(int chunk, int replica, double samples) const {
    const auto c = static_cast<std::size_t>(chunk);
    const double bytes = samples * problem_.CrossingBytes(layout_.cut[c], layout_.cut[c + 1]);
    return SlowestDevice(chunk, replica, [&](const ProblemDevice& device) {
      return MovingSeconds(problem_, device.kind, layout_.tensor, bytes);
    });
  }
  int Node(int chunk, int replica) const { return Device(chunk, replica, 0).node; }

 private:
  const ProblemDevice& Device(int chunk, int replica, int rank) const {
    return problem_.devices[static_cast<std::size_t>(
        layout_.devices[layout_.DeviceIndex(chunk % layout_.Stages(), replica, rank)])];
  }
  template <class Of>
  double OfStage(int stage, Of of) const {
    double sum = 0;
    for (int chunk = stage; chunk < layout_.Chunks(); chunk += layout_.Stages()) sum += of(chunk);
    return sum;
  }
  template <class Of>
  double SlowestDevice(int chunk, int replica, Of of) const {
    double slowest = 0;
    for (int t = 0; t < layout_.tensor; ++t) {
      const ProblemDevice& device = Device(chunk, replica, t);
      slowest = std::max(slowest, of(device) / device.standing);
    }
    return slowest;
  }
  template <class Of>
  double Slowest(int chunk, int replica, Of of) const {
    return SlowestDevice(chunk, replica, [&](const ProblemDevice& device) {
      return of(lines_[static_cast<std::size_t>(chunk) * problem_.kinds.size() +
                       static_cast<std::size_t>(device.kind)]);
    });
  }
  TensorLines Tensor(int chunk, int replica) const {
    if (tensor_.empty()) return {};
    return tensor_[static_cast<std::size_t>(chunk) * problem_.links.Nodes() +
                   static_cast<std::size_t>(Node(chunk, replica))];
  }

  const PlanProblem& problem_;
  const Layout& layout_;
  std::vector<StageLines> lines_;    // index = chunk x kinds + kind
  std::vector<TensorLines> tensor_;  // index = chunk x nodes + node; empty without tensor ranks
};

double LastMicroBatch(const ReplicaShare& share) {
  return static_cast<double>(share.samples - (share.MicroBatches() - 1) * share.micro_batch);
}

/// Seconds of a replica's passes, with and without the transfer of activations.
struct ReplicaSeconds {
  double all = 0, without_transfers = 0;
  std::vector<double> busy;  // index = stage
};

PlayCosts CostsWith(const PlanProblem& problem, const Layout& layout, const Times& times,
                    int replica) {
  const auto b = static_cast<double>(layout.shares[static_cast<std::size_t>(replica)].micro_batch);
  PlayCosts costs;
  for (int c = 0; c < layout.Chunks(); ++c) {
    const double weights = times.WeightGradients(c, replica, b);
    costs.stages.push_back({.forward = times.Forward(c, replica, b),
                            .backward_input = times.Backward(c, replica, b) - weights,
                            .backward_weight = weights,
                            .moving = times.Moving(c, replica, b)});
    if (c + 1 == layout.Chunks()) break;
    const auto last = static_cast<std::size_t>(layout.cut[static_cast<std::size_t>(c) + 1] - 1);
    const double both_ways =
        BoundarySeconds(problem.links, times.Node(c, replica), times.Node(c + 1, replica),
                        b * problem.layers[last].boundary_bytes);
    costs.transfer_s.push_back(both_ways / 2);
  }
  return costs;
}

ReplicaSeconds PlayedSteps(const PlanProblem& problem, const Layout& layout, const Times& times,
                           int replica, int steps) {
  PlayCosts costs = CostsWith(problem, layout, times, replica);
  const Schedule order = OrderOf(layout, replica, steps);
  const SchedulePlay with = PlaySchedule(order, costs);
  std::fill(costs.transfer_s.begin(), costs.transfer_s.end(), 0.0);
  return {with.makespan_s, PlaySchedule(order, costs).makespan_s, with.busy_s};
}

/// Of the replica's schedule, played. Without a flush a step takes what one more adds.
ReplicaSeconds PlayedSeconds(const PlanProblem& problem, const Layout& layout, const Times& times,
                             int replica) {
  const int steps = StepsOf(layout.schedule);
  ReplicaSeconds seconds = PlayedSteps(problem, layout, times, replica, steps);
  if (steps == 1) return seconds;
  const ReplicaSeconds fewer = PlayedSteps(problem, layout, times, replica, steps - 1);
  for (std::size_t s = 0; s < seconds.busy.size(); ++s) seconds.busy[s] -= fewer.busy[s];
  // Differences that are alike may differ by their rounding.
  seconds.without_transfers = std::max(*std::max_element(seconds.busy.begin(), seconds.busy.end()),
                                       seconds.without_transfers - fewer.without_transfers);
  seconds.all = std::max(seconds.without_transfers, seconds.all - fewer.all);
  return seconds;
}

ReplicaSeconds SecondsOf(const PlanProblem& problem, const Layout& layout, const Times& times,
                         int replica) {
  const ReplicaShare& share = layout.shares[static_cast<std::size_t>(replica)];
  const auto b = static_cast<double>(share.micro_batch);
  const auto more = static_cast<double>(share.MicroBatches() - 1);
  const int stages = layout.Stages();
  ReplicaSeconds seconds;
  if (stages == 1) {
    double all = times.Both(0, replica, LastMicroBatch(share));
    if (more > 0) all += more * times.Both(0, replica, b);  // 0 x infinity is not a number
    return {all, all, {all}};
  }
  if (!layout.IsPlain()) return PlayedSeconds(problem, layout, times, replica);
  seconds.busy.resize(static_cast<std::size_t>(stages));
  double trip = 0, period = 0, bare_trip = 0, bare_period = 0;
  for (int s = stages - 1; s >= 0; --s) {
    const double both = times.Both(s, replica, b);
    double transfer = 0;
    if (s + 1 < stages) {
      const auto last = static_cast<std::size_t>(layout.cut[static_cast<std::size_t>(s) + 1] - 1);
      transfer = BoundarySeconds(problem.links, times.Node(s, replica), times.Node(s + 1, replica),
                                 b * problem.layers[last].boundary_bytes);
    }
    trip += both + transfer;
    bare_trip += both;
    period = std::max({period, both, trip / (stages - s)});
    bare_period = std::max({bare_period, both, bare_trip / (stages - s)});
    seconds.busy[static_cast<std::size_t>(s)] = both * (more + 1);
  }
  // Avoids 0 x infinity for one micro-batch over a missing link.
  seconds.all = more > 0 ? trip + more * period : trip;
  seconds.without_transfers = bare_trip + more * bare_period;
  return seconds;
}

/// Seconds of a stage's exchange.
struct ExchangeCost {
  double slowing = 0;  // by which its last backward takes longer
  double exposed = 0;  // after that
};

ExchangeCost ExchangeOf(const PlanProblem& problem, const Layout& layout, const Times& times,
                        int stage) {
  if (layout.data == 1) return {};
  const RingSpeed speed = SpeedOfStage(problem, layout, stage);
  double bytes = 0, first_bytes = 0, compression = 0;
  const std::vector<int> layers = layout.LayersOf(stage);
  for (const int l : layers) {
    const ProblemLayer& layer = problem.layers[static_cast<std::size_t>(l)];
    const bool compressed = layout.compressed[static_cast<std::size_t>(l)];
    const double sent = compressed ? layer.compressed_bytes : layer.gradient_bytes;
    if (compressed) compression += layer.compression_s;
    if (l == layers.front()) first_bytes = sent;
    bytes += sent;
  }
  double hidden = kInfinity;
  for (int d = 0; d < layout.data; ++d)
    hidden =
        std::min(hidden, times.BackwardOfStage(
                             stage, d, LastMicroBatch(layout.shares[static_cast<std::size_t>(d)])));
  if (problem.exchange_after) return {0, RingSeconds(layout.data, speed, bytes) + compression};
  const double slowing = SlowingSeconds(layout.data, speed, bytes - first_bytes);
  const double exposed = std::max(RingSeconds(layout.data, speed, bytes) - hidden - slowing,
                                  RingSeconds(layout.data, speed, first_bytes));
  return {slowing, exposed + compression};
}

double TiedSeconds(const PlanProblem& problem, const Layout& layout, const Times& times) {
  const int last = layout.Stages() - 1;
  if (!problem.tied || last == 0) return 0;
  double seconds = 0;
  for (int d = 0; d < layout.data; ++d)
    seconds = std::max(seconds, BoundarySeconds(problem.links, times.Node(0, d),
                                                times.Node(last, d), problem.tied_bytes));
  return seconds;
}

}  // namespace

double RingSeconds(int members, const RingSpeed& speed, double bytes) {
  if (members < 2) return 0;
  if (speed.bytes_per_second <= 0) return kInfinity;
  // Each member sends and receives all the time.
  const double s_per_byte = std::max(1 / speed.bytes_per_second, 2 * speed.transfer_s_per_byte);
  return 2.0 * (members - 1) * (2 * speed.latency_s + bytes / members * s_per_byte);
}

double SlowingSeconds(int members, const RingSpeed& speed, double bytes) {
  return 4.0 * (members - 1) / members * bytes * speed.transfer_s_per_byte;
}

double MovingSeconds(const PlanProblem& problem, int kind, int ranks, double bytes) {
  return problem.kinds[static_cast<std::size_t>(kind)].transfer_s_per_byte * bytes /
         (problem.shares_rows ? ranks : 1);
}

RingSpeed SpeedOfRing(const LinkTable& links, std::span<const int> nodes) {
  RingSpeed speed{0, kInfinity};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const LinkSpeed& link = links.At(nodes[i], nodes[i + 1 == nodes.size() ? 0 : i + 1]);
    speed.latency_s = std::max(speed.latency_s, link.latency_s);
    speed.bytes_per_second = std::min(speed.bytes_per_second, link.bytes_per_second);
  }
  return speed;
}

RingSpeed SpeedOfStage(const PlanProblem& problem, const Layout& layout, int stage) {
  const auto device = [&](int replica, int rank) -> const ProblemDevice& {
    return problem.devices[static_cast<std::size_t>(
        layout.devices[layout.DeviceIndex(stage, replica, rank)])];
  };
  std::vector<int> nodes;
  double transfer = 0;
  for (const int replica : layout.rings[static_cast<std::size_t>(stage)]) {
    nodes.push_back(device(replica, 0).node);
    for (int rank = 0; rank < layout.tensor; ++rank) {
      const ProblemDevice& its = device(replica, rank);
      const DeviceKind& kind = problem.kinds[static_cast<std::size_t>(its.kind)];
      transfer = std::max(transfer, kind.transfer_s_per_byte / its.standing);
    }
  }
  RingSpeed speed = SpeedOfRing(problem.links, nodes);
  speed.transfer_s_per_byte = transfer / layout.tensor;
  return speed;
}

bool Compresses(const PlanProblem& problem, int layer_index, int members, const RingSpeed& speed) {
  const ProblemLayer& layer = problem.layers[static_cast<std::size_t>(layer_index)];
  if (layer.compressed_bytes <= 0 || members < 2 || speed.bytes_per_second <= 0) return false;
  if (problem.compress_all) return true;
  return RingSeconds(members, speed, layer.compressed_bytes) + layer.compression_s <
         RingSeconds(members, speed, layer.gradient_bytes);
}

double BoundarySeconds(const LinkTable& links, int from, int to, double bytes) {
  const LinkSpeed& there = links.At(from, to);
  const LinkSpeed& back = links.At(to, from);
  if (there.bytes_per_second <= 0 || back.bytes_per_second <= 0) return kInfinity;
  return there.latency_s + back.latency_s +
         bytes * (1 / there.bytes_per_second + 1 / back.bytes_per_second);
}

RankSums& RankSums::operator+=(const RankSums& more) {
  count.fixed += more.count.fixed;
  count.per_sample += more.count.per_sample;
  bytes += more.bytes;
  bytes_per_rank += more.bytes_per_rank;
  return *this;
}

RankSums ProblemLayer::ForwardSums(int ranks) const {
  RankSums sums = forward_sums;
  if (SharesHeads(ranks)) sums += head_sums;
  return sums;
}

RankSums ProblemLayer::BackwardSums(std::size_t recompute, int ranks) const {
  RankSums sums = backward_sums[recompute];
  if (!SharesHeads(ranks)) return sums;
  sums += head_sums;
  if (recompute == static_cast<std::size_t>(Recompute::kFull)) sums += head_sums;  // forward again
  return sums;
}

Line RankSums::Seconds(int ranks, const LinkSpeed& inside) const {
  const bool none = count.fixed == 0 && count.per_sample == 0;
  if (ranks == 1 || none) return {};
  if (inside.bytes_per_second <= 0) return {kInfinity, 0};
  const double rounds = 2.0 * (ranks - 1), all = bytes + ranks * bytes_per_rank;
  return {rounds * count.fixed * inside.latency_s,
          rounds * (count.per_sample * inside.latency_s + all / (ranks * inside.bytes_per_second))};
}

StepCost CostOf(const PlanProblem& problem, const Layout& layout) {
  const Times times(problem, layout);
  StepCost cost;
  ReplicaSeconds slowest;
  for (int d = 0; d < layout.data; ++d) {
    const ReplicaSeconds seconds = SecondsOf(problem, layout, times, d);
    if (d == 0 || seconds.all > slowest.all) slowest = seconds;
  }
  cost.activations = slowest.all - slowest.without_transfers;
  double slowing = 0;
  for (int s = 0; s < layout.Stages(); ++s) {
    const ExchangeCost exchange = ExchangeOf(problem, layout, times, s);
    slowing += exchange.slowing;
    cost.compute =
        std::max(cost.compute, slowest.busy[static_cast<std::size_t>(s)] + exchange.slowing);
    double update = 0;
    for (int d = 0; d < layout.data; ++d) update = std::max(update, times.UpdateOfStage(s, d));
    if (s > 0 && exchange.exposed + update <= cost.gradients + cost.update) continue;
    cost.gradients = exchange.exposed;
    cost.update = update;
  }
  // The other stages wait for a last backward that takes longer.
  cost.bubble = slowest.without_transfers + slowing - cost.compute;
  cost.gradients += TiedSeconds(problem, layout, times);
  cost.step = slowest.all + slowing + cost.gradients + cost.update;
  return cost;
}

PlayCosts PlayCostsOf(const PlanProblem& problem, const Layout& layout, int replica) {
  return CostsWith(problem, layout, Times(problem, layout), replica);
}

std::vector<PlaceSeconds> PlaceSecondsOf(const PlanProblem& problem, const Layout& layout) {
  const Times times(problem, layout);
  std::vector<PlaceSeconds> places;
  for (int stage = 0; stage < layout.Stages(); ++stage)
    for (int replica = 0; replica < layout.data; ++replica)
      places.push_back(times.OfPlace(stage, replica));
  return places;
}

UnevenPipeline PipelineOf(const PlanProblem& problem, const Layout& layout, int replica) {
  // Messages that a list schedule may need beyond those of 1F1B.
  constexpr int kMoreMessages = 4;
  const ReplicaShare& share = layout.shares[static_cast<std::size_t>(replica)];
  const auto b = static_cast<double>(share.micro_batch);
  Layout plain = layout;
  plain.schedule = ScheduleKind::kOneForwardOneBackward;
  plain.listed.clear();
  const std::vector<double> memory = MemoryOf(problem, plain);
  UnevenPipeline pipeline{.ranks = layout.Stages(),
                          .micro_batches = static_cast<int>(share.MicroBatches()),
                          .costs = PlayCostsOf(problem, layout, replica),
                          .activation_bytes = {},
                          .rank_bytes = {}};
  // A list is made, and its bound holds, with passes of one length.
  for (StageSeconds& stage : pipeline.costs.stages) stage.moving = 0;
  for (int s = 0; s < layout.Stages(); ++s) {
    double activations = 0;
    for (const int l : layout.LayersOf(s))
      activations += b * problem.layers[static_cast<std::size_t>(l)].ActivationBytes(
                             static_cast<std::size_t>(layout.recompute), layout.tensor);
    const std::size_t at = layout.DeviceIndex(s, replica, 0);
    const ProblemDevice& device = problem.devices[static_cast<std::size_t>(layout.devices[at])];
    const auto held =
        static_cast<double>(std::min<std::int64_t>(share.MicroBatches(), layout.Stages() - s));
    pipeline.activation_bytes.push_back(activations);
    pipeline.rank_bytes.push_back(
        kMemoryShare * device.memory_bytes - memory[at] + held * activations -
        problem.MessageBytes(kMoreMessages, share.micro_batch, layout.tensor));
  }
  return pipeline;
}

}  // namespace adaptive_train
