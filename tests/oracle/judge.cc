#include "tests/oracle/judge.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tests/oracle/terms.h"

namespace adaptive_train::oracle {
namespace {

class Sums {
 public:
  Sums(const PlanProblem& problem, const Layout& layout) : problem_(problem), layout_(layout) {}

  double Forward(int stage, int replica, double samples) const {
    return Slowest(stage, replica,
                   [&](int device, int layer) {
                     return ForwardOf(problem_, device, layer, layout_.tensor, samples);
                   }) +
           Messages(stage, replica, samples);
  }
  double Backward(int stage, int replica, double samples) const {
    return Slowest(stage, replica,
                   [&](int device, int layer) {
                     return BackwardOf(problem_, device, layer, layout_.tensor, layout_.recompute,
                                       samples);
                   }) +
           Messages(stage, replica, samples);
  }
  /// Computing that a moved byte takes from the rank that it delays most.
  double Moving(int stage, int replica) const {
    double slowest = 0;
    for (int rank = 0; rank < layout_.tensor; ++rank) {
      const auto device =
          static_cast<std::size_t>(layout_.devices.at(layout_.DeviceIndex(stage, replica, rank)));
      const ProblemDevice& its = problem_.devices.at(device);
      const double each = problem_.kinds.at(static_cast<std::size_t>(its.kind)).transfer_s_per_byte;
      slowest = std::max(slowest, each / its.standing);
    }
    return slowest;
  }
  double Update(int stage, int replica) const {
    return Slowest(stage, replica, [&](int device, int layer) {
      return UpdateOf(problem_, device, layer, layout_.tensor, layout_.data, layout_.shard);
    });
  }

  int Node(int stage, int replica) const {
    const int device = layout_.devices.at(layout_.DeviceIndex(stage, replica, 0));
    return problem_.devices.at(static_cast<std::size_t>(device)).node;
  }
  LayerRange Range(int stage) const {
    const auto at = static_cast<std::size_t>(stage);
    return {layout_.cut.at(at), layout_.cut.at(at + 1)};
  }
  const ReplicaShare& Share(int replica) const {
    return layout_.shares.at(static_cast<std::size_t>(replica));
  }
  /// Samples of a replica's last micro-batch.
  double LastSamples(int replica) const {
    const ReplicaShare& share = Share(replica);
    return static_cast<double>(share.samples - (share.MicroBatches() - 1) * share.micro_batch);
  }

 private:
  /// Of a pass: moving what comes from the stage before and what goes to the next, or the other way.
  double Messages(int stage, int replica, double samples) const {
    double bytes = 0;
    for (const int neighbour : {stage, stage + 1}) {
      const int boundary = layout_.cut.at(static_cast<std::size_t>(neighbour));
      if (boundary > 0 && boundary < static_cast<int>(problem_.layers.size()))
        bytes +=
            samples * problem_.layers.at(static_cast<std::size_t>(boundary) - 1).boundary_bytes;
    }
    return bytes * Moving(stage, replica) / (problem_.shares_rows ? layout_.tensor : 1);
  }
  template <typename Seconds>
  double Slowest(int stage, int replica, Seconds&& seconds) const {
    const LayerRange range = Range(stage);
    double slowest = 0;
    for (int rank = 0; rank < layout_.tensor; ++rank) {
      const int device = layout_.devices.at(layout_.DeviceIndex(stage, replica, rank));
      double sum = 0;
      for (int layer = range.first; layer < range.end; ++layer) sum += seconds(device, layer);
      slowest = std::max(slowest, sum);
    }
    return slowest;
  }

  const PlanProblem& problem_;
  const Layout& layout_;
};

double WithoutPipeline(const Sums& sums, int replica) {
  const ReplicaShare& share = sums.Share(replica);
  const auto whole = static_cast<double>(share.micro_batch);
  const double last = sums.LastSamples(replica);
  const auto before_last = static_cast<double>(share.MicroBatches() - 1);
  if (std::isinf(sums.Forward(0, replica, whole))) return sums.Forward(0, replica, whole);
  return before_last * (sums.Forward(0, replica, whole) + sums.Backward(0, replica, whole)) +
         sums.Forward(0, replica, last) + sums.Backward(0, replica, last);
}

double Pipelined(const PlanProblem& problem, const Layout& layout, const Sums& sums, int replica) {
  const int stages = layout.Stages();
  const ReplicaShare& share = sums.Share(replica);
  const auto samples = static_cast<double>(share.micro_batch);
  double round_trip = 0, period = 0;
  for (int stage = stages - 1; stage >= 0; --stage) {
    const double own =
        sums.Forward(stage, replica, samples) + sums.Backward(stage, replica, samples);
    round_trip += own;
    if (stage + 1 < stages) {
      const auto boundary = static_cast<std::size_t>(sums.Range(stage).end - 1);
      round_trip += ThereAndBack(problem, sums.Node(stage, replica), sums.Node(stage + 1, replica),
                                 samples * problem.layers.at(boundary).boundary_bytes);
    }
    period = std::max({period, own, round_trip / (stages - stage)});
  }
  // Over a link that is not there; 0 x infinity would be no number.
  if (std::isinf(period)) return period;
  return round_trip + static_cast<double>(share.MicroBatches() - 1) * period;
}

struct AfterPasses {
  double slowing = 0;   // of the last backward
  double exchange = 0;  // and update
};

AfterPasses ExchangeAndUpdate(const PlanProblem& problem, const Layout& layout, const Sums& sums,
                              int stage) {
  double backward = 0, update = 0;
  for (int replica = 0; replica < layout.data; ++replica) {
    const double own = sums.Backward(stage, replica, sums.LastSamples(replica));
    backward = replica == 0 ? own : std::min(backward, own);
    update = std::max(update, sums.Update(stage, replica));
  }
  if (layout.data == 1) return {0, update};
  std::vector<int> nodes;
  for (const int replica : layout.rings.at(static_cast<std::size_t>(stage)))
    nodes.push_back(sums.Node(stage, replica));
  RingLinks links = LinksOfRing(problem, nodes);
  for (int replica = 0; replica < layout.data; ++replica)
    links.moving_s_per_byte =
        std::max(links.moving_s_per_byte, sums.Moving(stage, replica) / layout.tensor);
  const ExchangeTerms terms =
      ExchangeOf(problem, sums.Range(stage), layout.compressed, links, layout.data);
  return {terms.slowing, terms.Exposed(backward) + update};
}

double Tied(const PlanProblem& problem, const Layout& layout, const Sums& sums) {
  double slowest = 0;
  if (!problem.tied || layout.Stages() == 1) return slowest;
  for (int replica = 0; replica < layout.data; ++replica)
    slowest = std::max(slowest,
                       ThereAndBack(problem, sums.Node(0, replica),
                                    sums.Node(layout.Stages() - 1, replica), problem.tied_bytes));
  return slowest;
}

void JudgeMemory(const PlanProblem& problem, const Layout& layout, const Sums& sums,
                 Judgement& judgement) {
  judgement.memory_bytes.resize(layout.devices.size());
  judgement.fits = true;
  const int stages = layout.Stages();
  for (int stage = 0; stage < stages; ++stage)
    for (int replica = 0; replica < layout.data; ++replica) {
      const ReplicaShare& share = sums.Share(replica);
      const MemoryTerms terms = MemoryOfStage(
          problem, sums.Range(stage),
          {layout.data, layout.tensor, layout.shard, stages, layout.recompute, share.micro_batch});
      const auto in_flight =
          std::min(share.MicroBatches(), static_cast<std::int64_t>(stages - stage));
      const double bytes = terms.fixed + static_cast<double>(in_flight) * terms.in_flight;
      for (int rank = 0; rank < layout.tensor; ++rank) {
        const std::size_t index = layout.DeviceIndex(stage, replica, rank);
        const auto device = static_cast<std::size_t>(layout.devices.at(index));
        judgement.memory_bytes.at(index) = bytes;
        judgement.fits =
            judgement.fits && bytes <= kMemoryShare * problem.devices.at(device).memory_bytes;
      }
    }
}

}  // namespace

Judgement Judge(const PlanProblem& problem, const Layout& layout) {
  const Sums sums(problem, layout);
  Judgement judgement;
  for (int replica = 0; replica < layout.data; ++replica)
    judgement.replica = std::max(judgement.replica,
                                 layout.Stages() == 1 ? WithoutPipeline(sums, replica)
                                                      : Pipelined(problem, layout, sums, replica));
  // Each stage waits for the last backward of the one behind it.
  for (int stage = 0; stage < layout.Stages(); ++stage) {
    const AfterPasses after = ExchangeAndUpdate(problem, layout, sums, stage);
    judgement.replica += after.slowing;
    judgement.exchange = std::max(judgement.exchange, after.exchange);
  }
  judgement.tied = Tied(problem, layout, sums);
  judgement.step = judgement.replica + judgement.exchange + judgement.tied;
  JudgeMemory(problem, layout, sums, judgement);
  return judgement;
}

}  // namespace adaptive_train::oracle
