// What a layout needs on each device: the memory of docs/planning.md.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "core/schedule/message_slots.h"
#include "core/schedule/passes.h"
#include "core/unit_tree.h"
#include "launcher/planner/layout.h"

namespace adaptive_train {

namespace {

/// What micro-batches in flight take on the ranks of one replica. Index = stage.
std::vector<double> InFlightBytes(const PlanProblem& problem, const Layout& layout, int replica) {
  const auto recompute = static_cast<std::size_t>(layout.recompute);
  const ReplicaShare& share = layout.shares[static_cast<std::size_t>(replica)];
  const Schedule order =
      layout.IsPlain() ? Schedule{} : OrderOf(layout, replica, StepsOf(layout.schedule));
  const Schedule with_messages = layout.IsPlain() ? Schedule{} : AddSendsAndReceives(order);
  std::vector<double> bytes(static_cast<std::size_t>(layout.Stages()), 0.0);
  for (int c = 0; c < layout.Chunks(); ++c) {
    const int stage = c % layout.Stages();
    const auto s = static_cast<std::size_t>(stage), at = static_cast<std::size_t>(c);
    double activations = 0;
    for (int l = layout.cut[at]; l < layout.cut[at + 1]; ++l)
      activations +=
          problem.layers[static_cast<std::size_t>(l)].ActivationBytes(recompute, layout.tensor);
    const std::int64_t at_once =
        layout.IsPlain() ? std::min<std::int64_t>(share.MicroBatches(), layout.Stages() - stage)
                         : MostInFlight(order.ranks[s], c);
    bytes[s] += static_cast<double>(share.micro_batch * at_once) * activations;
    if (c != stage) continue;
    if (layout.IsPlain()) {
      bytes[s] += problem.BoundaryBytes(stage, layout.Stages(), share.micro_batch, layout.tensor);
      continue;
    }
    int messages = 0;
    for (const MessageSlots& slots : SlotsOf(with_messages, stage))
      messages += slots.received + slots.sent;
    bytes[s] +=
        problem.MessageBytes(messages, share.micro_batch, layout.tensor) +
        problem.TiedBytes(stage, layout.Stages(), layout.tensor, WeightVersionsOf(layout.schedule));
  }
  return bytes;
}

/// How many sums of units the ranks of each replica keep at most.
std::vector<std::int64_t> KeptSums(const PlanProblem& problem, const Layout& layout) {
  std::vector<std::int64_t> kept;
  std::int64_t begin = 0;
  for (const ReplicaShare& share : layout.shares) {
    const std::int64_t end = begin + share.MicroBatches();
    const std::int64_t units = problem.global_batch / share.micro_batch;
    kept.push_back(problem.whole_micro_batches ? MostKept({begin, end}, units) : 0);
    begin = end;
  }
  return kept;
}

/// Sharded gradients of a rank. With several chunks each is sent once, after its last micro-batch:
/// breadth-first needs one chunk's gradients at a time for that, other orders all of them.
double ShardedGradients(const PlanProblem& problem, const Layout& layout, int stage, double whole) {
  if (layout.interleave == 1)
    return ShardedGradientBytes(whole, layout.data, problem.PassingGradientBytes(layout.tensor),
                                problem.OnTheirWayShare());
  if (layout.schedule != ScheduleKind::kBreadthFirst) return whole;
  double largest = 0;
  for (int c = stage; c < layout.Chunks(); c += layout.Stages()) {
    double its = 0;
    for (int l = layout.cut[static_cast<std::size_t>(c)];
         l < layout.cut[static_cast<std::size_t>(c) + 1]; ++l) {
      const ProblemLayer& layer = problem.layers[static_cast<std::size_t>(l)];
      its += layer.PartOfParameters(layout.tensor) * layer.gradient_bytes;
    }
    largest = std::max(largest, its);
  }
  return std::min(whole, whole / layout.data + largest);
}

}  // namespace

double RankBytes::Scratch(std::int64_t micro_batch) const {
  if (scratch.empty()) return 0;
  const auto count = static_cast<std::int64_t>(scratch.size());
  const std::int64_t index = std::max<std::int64_t>(micro_batch, 1) - 1;
  if (index < count) return scratch[static_cast<std::size_t>(index)];
  const double slope = count == 1 ? scratch[0] : scratch.back() - scratch[scratch.size() - 2];
  return scratch.back() + slope * static_cast<double>(index - (count - 1));
}

double PlanProblem::CommonBytes(Recompute recompute, std::int64_t micro_batch, int ranks) const {
  const auto above = rank_bytes.upper_bound(ranks);
  if (above == rank_bytes.begin()) return base_bytes;
  const RankBytes& bytes = std::prev(above)->second;
  return base_bytes + bytes.Scratch(micro_batch) +
         static_cast<double>(micro_batch) * bytes.workspace[static_cast<std::size_t>(recompute)];
}

double PlanProblem::BoundaryBytes(int stage, int stages, std::int64_t micro_batch,
                                  int ranks) const {
  if (stages == 1) return 0;
  const int neighbours = stage == 0 || stage + 1 == stages ? 1 : 2;
  return MessageBytes(4 * neighbours, micro_batch, ranks) + TiedBytes(stage, stages, ranks);
}

double PlanProblem::MessageBytes(int messages, std::int64_t micro_batch, int ranks) const {
  return static_cast<double>(messages) * static_cast<double>(micro_batch) *
         layers.front().boundary_bytes / (shares_rows ? ranks : 1);
}

double PlanProblem::CrossingBytes(int begin, int end) const {
  const double before = begin > 0 ? layers[static_cast<std::size_t>(begin) - 1].boundary_bytes : 0;
  return before + layers[static_cast<std::size_t>(end) - 1].boundary_bytes;
}

double PlanProblem::TiedBytes(int stage, int stages, int ranks, int weight_versions) const {
  const ProblemLayer& first = layers.front();
  if (!tied || stages == 1) return 0;
  const double gradient = tied_bytes / ranks;
  if (stage == 0) return gradient;
  if (stage + 1 < stages) return 0;
  return weight_versions * gradient * (first.parameter_bytes + first.gradient_bytes) /
         first.gradient_bytes;
}

double PlanProblem::UnitBytes(int stage, int stages, int ranks, int replicas, double gradients,
                              std::int64_t kept) const {
  if (!whole_micro_batches) return 0;
  const auto copies = static_cast<double>(kept);
  const double shared = tied_bytes / ranks;
  double bytes = copies * gradients;
  if (tied && stages == 1) bytes += (copies + 1) * shared;
  if (tied && stages > 1 && (stage == 0 || stage + 1 == stages)) bytes += copies * shared;
  if (replicas > 1) bytes += 2 * (copies + 1) * std::min(kOnTheirWayBytes, gradients);
  return bytes;
}

double PlanProblem::PassingGradientBytes(int ranks) const {
  const auto of = [ranks](const ProblemLayer& layer) {
    return layer.PartOfParameters(ranks) * layer.gradient_bytes;
  };
  double largest = 0;
  for (std::size_t i = 1; i < layers.size(); ++i) largest = std::max(largest, of(layers[i]));
  return std::max(of(layers.front()), (tied ? tied_bytes / ranks : 0) + largest);
}

double PlanProblem::OnTheirWayShare() const {
  double all = 0;
  for (const ProblemLayer& layer : layers) all += layer.gradient_bytes;
  return std::min(1.0, kOnTheirWayBytes / std::max(1.0, all));
}

double PlanProblem::ExchangeCopies(int shard, int replicas) const {
  if (replicas == 1) return 0;
  if (shard == 0) return 1.0 / replicas + feedback_copies;
  // Messages that are packed and received, or a chunk's sums alone, of one in two ranks at most.
  const double each = compress_from_start ? 0.5 : 2;
  return each * OnTheirWayShare() + feedback_copies;
}

double ShardedGradientBytes(double whole, int replicas, double passing, double on_their_way_share) {
  return std::min(whole, whole / replicas + std::min(passing, (1 - on_their_way_share) * whole));
}

std::vector<double> MemoryOf(const PlanProblem& problem, const Layout& layout) {
  const double data = layout.data;
  const double versions = WeightVersionsOf(layout.schedule);
  const double copies = problem.ExchangeCopies(layout.shard, layout.data);
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>> in_flight;  // by share
  for (int d = 0; d < layout.data; ++d) {
    const ReplicaShare& share = layout.shares[static_cast<std::size_t>(d)];
    const auto [at, added] = in_flight.try_emplace({share.micro_batch, share.MicroBatches()});
    if (added) at->second = InFlightBytes(problem, layout, d);
  }
  const std::vector<std::int64_t> kept_sums = KeptSums(problem, layout);
  std::vector<double> bytes(layout.devices.size());
  for (int s = 0; s < layout.Stages(); ++s) {
    double kept = 0, gradients = 0;
    for (const int l : layout.LayersOf(s)) {
      const ProblemLayer& layer = problem.layers[static_cast<std::size_t>(l)];
      const double part = layer.PartOfParameters(layout.tensor);
      kept += part * (layer.parameter_bytes * (versions + problem.snapshot_share / data) +
                      layer.gradient_bytes * copies +
                      layer.optimizer_bytes * (layout.shard >= 1 ? 1 / data : 1));
      gradients += part * layer.gradient_bytes;
    }
    kept += layout.shard == 2 && !problem.whole_micro_batches
                ? ShardedGradients(problem, layout, s, gradients)
                : gradients;
    kept += (versions - 1) * gradients;  // those of the step before, which are summed
    for (int d = 0; d < layout.data; ++d) {
      const ReplicaShare& share = layout.shares[static_cast<std::size_t>(d)];
      const double all =
          problem.CommonBytes(layout.recompute, share.micro_batch, layout.tensor) + kept +
          problem.UnitBytes(s, layout.Stages(), layout.tensor, layout.data, gradients,
                            kept_sums[static_cast<std::size_t>(d)]) +
          in_flight[{share.micro_batch, share.MicroBatches()}][static_cast<std::size_t>(s)];
      for (int t = 0; t < layout.tensor; ++t) bytes[layout.DeviceIndex(s, d, t)] = all;
    }
  }
  return bytes;
}

}  // namespace adaptive_train
