// Simulated steps against closed forms, and against the planner's formulas.
#include "launcher/simulator/simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "core/schedule/compute_order.h"
#include "core/schedule/play.h"
#include "launcher/planner/layout.h"
#include "tests/unit/simulator/problems.h"

namespace adaptive_train::simulator_test {
namespace {

constexpr double kTiny = 1e-9;
const LinkSpeed kInstant{0, std::numeric_limits<double>::infinity()};

double StepOf(const PlanProblem& problem, const Layout& layout,
              const SimulationOptions& options = {}) {
  return Simulate(problem, layout, options).step_seconds.front();
}

TEST(SimulatorTest, EvenPipelineWithoutTransfersTakesMicroBatchesAndStagesMinusOne) {
  for (const int stages : {1, 2, 4, 8}) {
    for (const int micro_batches : {1, 4, 13}) {
      const PlanProblem problem = EvenProblem{.devices = stages,
                                              .layers = 2 * stages,
                                              .global_batch = 2 * micro_batches,
                                              .forward_s = 0.25,
                                              .backward_s = 0.5,
                                              .boundary_bytes = 100,
                                              .link = kInstant}
                                      .Make();
      const auto simulation = Simulate(problem, EvenLayout(problem, stages, 1, 2));
      const double t = 2 * 2 * 0.75;  // two layers, two samples
      EXPECT_NEAR(simulation.step_seconds.front(), (micro_batches + stages - 1) * t, kTiny);
      EXPECT_NEAR(simulation.parts.bubble / simulation.parts.step,
                  (stages - 1.0) / (micro_batches + stages - 1), kTiny);
      EXPECT_NEAR(simulation.parts.compute, micro_batches * t, kTiny);
    }
  }
}

TEST(SimulatorTest, PartsOfASimulatedStepAddUp) {
  const PlanProblem problem = EvenProblem{
      .devices = 8,
      .layers = 8,
      .global_batch = 16,
      .forward_s = 0.01,
      .backward_s = 0.02,
      .update_s = 0.003,
      .gradient_bytes = 3e6,
      .boundary_bytes = 1e6,
      .link = {1e-4, 1e8}}.Make();
  const auto s = Simulate(problem, EvenLayout(problem, 4, 2, 1));
  EXPECT_NEAR(s.parts.step, s.step_seconds.front(), kTiny);
  EXPECT_NEAR(
      s.parts.step,
      s.parts.compute + s.parts.bubble + s.parts.activations + s.parts.gradients + s.parts.update,
      kTiny);
  EXPECT_GT(s.parts.bubble, 0);
  EXPECT_GT(s.parts.activations, 0);
  EXPECT_GT(s.parts.gradients, 0);
  EXPECT_NEAR(s.parts.update, 2 * 0.003, kTiny);
}

// Ring all-reduce of V bytes over D ranks: 2 (D-1)/D V / bandwidth + 2 (D-1) latencies; then the
// agreement on ten numbers.
double RingSeconds(int members, double bytes, const LinkSpeed& link) {
  return 2.0 * (members - 1) * (link.latency_s + bytes / members / link.bytes_per_second);
}

TEST(SimulatorTest, GradientsOfEvenReplicasTakeARingsTime) {
  const LinkSpeed link{2e-3, 1e8};
  for (const int members : {2, 3, 4, 7, 16}) {
    const PlanProblem problem =
        EvenProblem{
            .devices = members, .global_batch = members, .gradient_bytes = 3e6, .link = link}
            .Make();
    const double expected = RingSeconds(members, 3e6, link) + RingSeconds(members, 80, link);
    EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, members, 1)), expected, 1e-9) << members;
    EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, members, 1), {.long_ring = 0}), expected,
                1e-9);
  }
}

TEST(SimulatorTest, BucketsInFlightTogetherShareTheLinks) {
  const LinkSpeed link{0, 1e8};
  const PlanProblem problem =
      EvenProblem{.devices = 4, .layers = 3, .global_batch = 4, .gradient_bytes = 8e6, .link = link}
          .Make();
  for (const int long_ring : {0, 16})
    EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, 4, 1), {.long_ring = long_ring}),
                RingSeconds(4, 24e6, link) + RingSeconds(4, 80, link), 1e-6);
}

// 280 GB in buckets of 4 MiB would be millions of messages.
TEST(SimulatorTest, AHugeModelIsPlayedCoarsely) {
  const LinkSpeed link{1e-4, 1e10};
  const PlanProblem problem =
      EvenProblem{
          .devices = 8, .layers = 80, .global_batch = 8, .gradient_bytes = 3.5e9, .link = link}
          .Make();
  const double expected = RingSeconds(8, 80 * 3.5e9, link);
  EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, 8, 1)) / expected, 1, 1e-3);
}

TEST(SimulatorTest, ExchangeHidesBehindTheLastBackwardExceptItsFirstLayer) {
  const LinkSpeed link{0, 1e8};
  const PlanProblem problem = EvenProblem{.devices = 2,
                                          .layers = 4,
                                          .global_batch = 2,
                                          .backward_s = 1,
                                          .gradient_bytes = 4 << 20,
                                          .link = link}
                                  .Make();
  // Each layer's bucket takes 0.042 s, far less than the layer below takes to compute.
  EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, 2, 1)),
              4 + RingSeconds(2, 4 << 20, link) + RingSeconds(2, 80, link), 1e-9);
}

TEST(SimulatorTest, NothingHidesOfWhatIsExchangedAfterTheUpdate) {
  const LinkSpeed link{0, 1e8};
  PlanProblem problem = EvenProblem{.devices = 2,
                                    .layers = 4,
                                    .global_batch = 2,
                                    .backward_s = 1,
                                    .gradient_bytes = 4 << 20,
                                    .link = link}
                            .Make();
  problem.exchange_after = true;
  EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, 2, 1)),
              4 + RingSeconds(2, 16 << 20, link) + RingSeconds(2, 80, link), 1e-9);
}

TEST(SimulatorTest, OneSlowLinkSetsTheRingsPace) {
  PlanProblem problem =
      EvenProblem{.devices = 4, .global_batch = 4, .gradient_bytes = 4e6, .link = {0, 1e8}}.Make();
  const Layout layout = EvenLayout(problem, 1, 4, 1);
  problem.links.At(2, 3) = {0, 1e7};
  for (const int long_ring : {0, 16})
    EXPECT_NEAR(StepOf(problem, layout, {.long_ring = long_ring}),
                RingSeconds(4, 4e6 + 80, {0, 1e7}), 1e-6);
}

// Two stages on each node: their rings share the nodes' cards, and take twice as long together.
TEST(SimulatorTest, RingsOfOneNodeShareItsCard) {
  PlanProblem problem = EvenProblem{
      .devices = 4,
      .layers = 2,
      .global_batch = 2,
      .gradient_bytes = 4e6,
      .link = {0, 1e8}}.Make();
  for (int i = 0; i < 4; ++i) problem.devices[static_cast<std::size_t>(i)].node = i % 2;
  const Layout layout = EvenLayout(problem, 2, 2, 1);
  EXPECT_NEAR(StepOf(problem, layout), 2 * RingSeconds(2, 4e6 + 80, {0, 1e8}), 1e-6);
  problem.devices[2].node = 2;
  problem.devices[3].node = 3;
  EXPECT_NEAR(StepOf(problem, layout), RingSeconds(2, 4e6 + 80, {0, 1e8}), 1e-6);
}

TEST(SimulatorTest, ACardBelowItsLinksHoldsThemBack) {
  const PlanProblem problem =
      EvenProblem{.devices = 2, .global_batch = 2, .gradient_bytes = 4e6, .link = {0, 1e8}}.Make();
  SimulationOptions options;
  options.cards.egress = {1e8, 2e7};
  options.cards.ingress = {1e8, 1e8};
  EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, 2, 1), options),
              RingSeconds(2, 4e6 + 80, {0, 2e7}), 1e-6);
}

TEST(SimulatorTest, ActivationsCrossStagesAndTheirGradientsReturn) {
  const PlanProblem problem = EvenProblem{
      .devices = 2,
      .layers = 2,
      .global_batch = 3,
      .forward_s = 1,
      .backward_s = 1,
      .boundary_bytes = 1e7,
      .link = {0.1, 1e8}}.Make();
  // One micro-batch of three samples: 3 + transfer + 6 + transfer + 3.
  const auto s = Simulate(problem, EvenLayout(problem, 2, 1, 3));
  EXPECT_NEAR(s.step_seconds.front(), 12 + 2 * (0.1 + 0.3), kTiny);
  // The first stage ends last: it has waited for its own transfer of the gradient and all earlier
  // ones.
  EXPECT_NEAR(s.parts.activations, 0.4, kTiny);
  EXPECT_NEAR(s.parts.bubble, 6.4, kTiny);
  ASSERT_EQ(s.links.size(), 2u);
  EXPECT_DOUBLE_EQ(s.links[0].bytes, 3e7);
  EXPECT_NEAR(s.links[0].Share(s.step_seconds.front()), 0.3 / 12.8, kTiny);
}

// Uneven stages: the events of the simulator end when the play of the same schedule ends.
TEST(SimulatorTest, APipelineTakesAsLongAsThePlayOfItsSchedule) {
  std::mt19937_64 random(1);
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  for (int draw = 0; draw < 50; ++draw) {
    const int stages = 1 + draw % 8, micro_batches = 1 + draw % 11;
    PlanProblem problem = EvenProblem{
        .devices = stages,
        .layers = stages,
        .global_batch = micro_batches,
        .boundary_bytes = 1e4,
        .link = {1e-3, 1e8}}.Make();
    PlayCosts costs;
    costs.transfer_s.assign(static_cast<std::size_t>(stages) - 1, 1e-3 + 1e4 / 1e8);
    for (LayerSeconds& layer : problem.kinds[0].layers) {
      layer.forward.per_sample = between(0.5, 2);
      layer.backward.per_sample = between(1, 4);
      layer.weight_gradients = {};
      costs.stages.push_back(
          {.forward = layer.forward.per_sample, .backward_input = layer.backward.per_sample});
    }
    const Schedule schedule =
        ComputeOrder(ScheduleKind::kOneForwardOneBackward, {stages, 1, micro_batches}).value();
    EXPECT_NEAR(StepOf(problem, EvenLayout(problem, stages, 1, 1)),
                PlaySchedule(schedule, costs).makespan_s, 1e-6)
        << stages << " stages, " << micro_batches << " micro-batches";
  }
}

// The same for chunks and other orders. Three ranks or more: with two, messages of both directions
// share a link.
TEST(SimulatorTest, EveryScheduleTakesAsLongAsItsPlay) {
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::kInterleaved,
                                  ScheduleKind::kZeroBubbleH1, ScheduleKind::kBreadthFirst}) {
    const bool has_chunks =
        kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kBreadthFirst;
    for (int draw = 0; draw < 24; ++draw) {
      const int ranks = 3 + draw % 3, micro_batches = 1 + draw % 8;
      const int chunks = has_chunks ? 2 + draw % 2 : 1, stages = ranks * chunks;
      PlanProblem problem = EvenProblem{
          .devices = ranks,
          .layers = stages,
          .global_batch = micro_batches,
          .boundary_bytes = 1e4,
          .link = {1e-3, 1e8}}.Make();
      PlayCosts costs;
      costs.transfer_s.assign(static_cast<std::size_t>(stages) - 1, 1e-3 + 1e4 / 1e8);
      for (int s = 0; s < stages; ++s) {
        LayerSeconds& layer = problem.kinds[0].layers[static_cast<std::size_t>(s)];
        layer.forward.per_sample = 1 + 0.37 * (s % 4);
        layer.backward.per_sample = 2 + 0.23 * (s % 5);
        layer.weight_gradients.per_sample = 0.3 * (s % 3);
        costs.stages.push_back(
            {.forward = layer.forward.per_sample,
             .backward_input = layer.backward.per_sample - layer.weight_gradients.per_sample,
             .backward_weight = layer.weight_gradients.per_sample});
      }
      Layout layout = EvenLayout(problem, stages, 1, 1);
      layout.schedule = kind;
      layout.interleave = chunks;
      layout.devices.resize(static_cast<std::size_t>(ranks));
      layout.rings.resize(static_cast<std::size_t>(ranks));
      const Schedule schedule = ComputeOrder(kind, {ranks, chunks, micro_batches}).value();
      EXPECT_NEAR(StepOf(problem, layout), PlaySchedule(schedule, costs).makespan_s, 1e-6)
          << NameOf(kind) << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
    }
  }
}

TEST(SimulatorTest, TheLastMicroBatchOfAReplicaMayBeSmaller) {
  const PlanProblem problem =
      EvenProblem{.devices = 1, .global_batch = 7, .forward_s = 1, .backward_s = 2}.Make();
  const auto s = Simulate(problem, EvenLayout(problem, 1, 1, 3));
  EXPECT_NEAR(s.step_seconds.front(), 21, kTiny);
  ASSERT_EQ(s.timeline.size(), 6u);
  EXPECT_NEAR(s.timeline[5].end - s.timeline[5].begin, 2, kTiny);
}

TEST(SimulatorTest, AShardedOptimizerUpdatesItsPartAndGathersTheRest) {
  PlanProblem problem = EvenProblem{
      .devices = 4,
      .global_batch = 4,
      .update_s = 8,
      .gradient_bytes = 4e6,
      .link = {0, 1e8}}.Make();
  Layout layout = EvenLayout(problem, 1, 4, 1);
  layout.shard = 1;
  EXPECT_NEAR(StepOf(problem, layout), 2 + RingSeconds(4, 4e6 + 80, {0, 1e8}), 1e-6);
}

TEST(SimulatorTest, TiedEmbeddingsGoToTheFirstStageAndBack) {
  PlanProblem problem =
      EvenProblem{.devices = 2, .layers = 2, .global_batch = 1, .link = {0.5, 1e6}}.Make();
  problem.tied = true;
  problem.tied_bytes = 2e6;
  EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 2, 1, 1)), 2 * 0.5 + 2 * (0.5 + 2), kTiny);
}

TEST(SimulatorTest, RecomputationStandingTensorRanksAndCompressionCount) {
  PlanProblem problem = EvenProblem{
      .devices = 2,
      .layers = 1,
      .global_batch = 1,
      .forward_s = 1,
      .backward_s = 2,
      .boundary_bytes = 1e6,
      .link = {0, 1e7}}.Make();
  Layout layout = EvenLayout(problem, 1, 1, 1);
  layout.recompute = Recompute::kFull;
  EXPECT_NEAR(StepOf(problem, layout), 4, kTiny);
  problem.devices[0].standing = 0.5;
  EXPECT_NEAR(StepOf(problem, layout), 8, kTiny);
  problem.devices[0].standing = 1;
  problem.layers[0].forward_sums = problem.layers[0].backward_sums[0] = {{2, 0}, 2e6, 0};
  problem.devices[1].node = 0;
  layout = EvenLayout(problem, 1, 1, 1, 2);
  // Half of 3 s, and four all-reduces of 1 MB over two devices: 0.1 s each.
  EXPECT_NEAR(StepOf(problem, layout), 1.5 + 0.4, kTiny);
}

TEST(SimulatorTest, CompressedLayersSendLessAndComputeMore) {
  PlanProblem problem =
      EvenProblem{.devices = 2, .global_batch = 2, .gradient_bytes = 4e6, .link = {0, 1e6}}.Make();
  problem.layers[0].compressed_bytes = 1e5;
  problem.layers[0].compression_s = 0.25;
  Layout layout = EvenLayout(problem, 1, 2, 1);
  layout.compressed[0] = true;
  EXPECT_NEAR(StepOf(problem, layout), 0.25 + RingSeconds(2, 1e5 + 80, {0, 1e6}), 1e-6);
}

TEST(SimulatorTest, TransfersTakeTimeFromComputing) {
  PlanProblem problem = EvenProblem{
      .devices = 2,
      .layers = 2,
      .global_batch = 2,
      .backward_s = 10,
      .gradient_bytes = 4 << 20,
      .link = {0, 1e6}}.Make();
  const Layout layout = EvenLayout(problem, 1, 2, 1);
  const double quiet = StepOf(problem, layout);
  problem.kinds[0].transfer_s_per_byte = 1e-7;
  // The last layer's bucket, as many bytes out as in, falls into the first layer's backward.
  EXPECT_NEAR(StepOf(problem, layout) - quiet, 2.0 * (4 << 20) * 1e-7, 1e-6);
}

TEST(SimulatorTest, AProcessorThatMovesMessagesLimitsThemInBothDirectionsTogether) {
  PlanProblem problem =
      EvenProblem{.devices = 4, .global_batch = 4, .gradient_bytes = 4e6, .link = {0, 1e9}}.Make();
  problem.kinds[0].transfer_s_per_byte = 1e-8;  // 100 MB/s in and out
  for (const int long_ring : {0, 16})
    EXPECT_NEAR(StepOf(problem, EvenLayout(problem, 1, 4, 1), {.long_ring = long_ring}),
                RingSeconds(4, 4e6 + 80, {0, 5e7}), 1e-6);
}

TEST(SimulatorTest, AnUnreachableNeighbourMakesTheStepInfinite) {
  PlanProblem problem =
      EvenProblem{.devices = 2, .global_batch = 2, .gradient_bytes = 1e6, .link = {0, 0}}.Make();
  EXPECT_TRUE(std::isinf(StepOf(problem, EvenLayout(problem, 1, 2, 1), {.steps = 3})));
}

TEST(SimulatorTest, JitterKeepsTheMeanAndSlowsWhoeverWaits) {
  SimulationOptions options{.steps = 1000, .timeline = false};
  options.chance.compute_sigma = 0.2;
  auto mean = [&](int devices) {
    const PlanProblem problem =
        EvenProblem{.devices = devices, .global_batch = devices, .forward_s = 1, .backward_s = 1}
            .Make();
    const auto s = Simulate(problem, EvenLayout(problem, 1, devices, 1), options);
    return std::accumulate(s.step_seconds.begin(), s.step_seconds.end(), 0.0) / 1000;
  };
  // Standard error: sqrt(2) 0.2 / sqrt(1000) = 0.009.
  EXPECT_NEAR(mean(1), 2, 0.03);
  // The slower of two normals is sigma / sqrt(pi) above their mean; sigma of the sum is 0.286.
  EXPECT_NEAR(mean(2), 2 + 0.286 / std::sqrt(3.14159), 0.03);
}

TEST(SimulatorTest, LossCostsItsTimeouts) {
  PlanProblem problem = EvenProblem{
      .devices = 2,
      .layers = 2,
      .global_batch = 1,
      .boundary_bytes = 1,
      .link = {0, 1e9}}.Make();
  SimulationOptions options{.steps = 2000, .timeline = false};
  options.chance.loss = 0.1;
  options.chance.retransmission_s = 0.5;
  const auto s = Simulate(problem, EvenLayout(problem, 2, 1, 1), options);
  const double mean = std::accumulate(s.step_seconds.begin(), s.step_seconds.end(), 0.0) / 2000;
  // Two messages a step, each lost 1/9 times on average.
  EXPECT_NEAR(mean, 2 * 0.5 / 9, 0.012);
}

TEST(SimulatorTest, VaryingLinksKeepNearTheirSpeed) {
  const PlanProblem problem =
      EvenProblem{.devices = 2, .layers = 2, .global_batch = 1, .boundary_bytes = 1e8}.Make();
  SimulationOptions options{.steps = 1000, .timeline = false};
  options.chance.bandwidth_sigma = 0.1;
  const auto s = Simulate(problem, EvenLayout(problem, 2, 1, 1), options);
  const double mean = std::accumulate(s.step_seconds.begin(), s.step_seconds.end(), 0.0) / 1000;
  EXPECT_NEAR(mean, 0.2 * std::exp(0.01), 0.002);  // the mean of 1 / lognormal
  EXPECT_NE(s.step_seconds[0], s.step_seconds[1]);
}

TEST(SimulatorTest, TheSeedAloneDecides) {
  const PlanProblem problem = EvenProblem{.devices = 4,
                                          .layers = 4,
                                          .global_batch = 8,
                                          .forward_s = 1,
                                          .backward_s = 2,
                                          .gradient_bytes = 1e7,
                                          .boundary_bytes = 1e5}
                                  .Make();
  const Layout layout = EvenLayout(problem, 2, 2, 1);
  SimulationOptions options{.steps = 5};
  options.chance = {.seed = 3, .compute_sigma = 0.1, .bandwidth_sigma = 0.1, .loss = 0.01};
  const auto first = Simulate(problem, layout, options).step_seconds;
  EXPECT_EQ(Simulate(problem, layout, options).step_seconds, first);
  options.chance.seed = 4;
  EXPECT_NE(Simulate(problem, layout, options).step_seconds, first);
}

TEST(SimulatorTest, ATimelineCoversEachRankWithoutOverlap) {
  const PlanProblem problem = EvenProblem{.devices = 8,
                                          .layers = 8,
                                          .global_batch = 8,
                                          .forward_s = 0.1,
                                          .backward_s = 0.2,
                                          .update_s = 0.05,
                                          .gradient_bytes = 1e7,
                                          .boundary_bytes = 1e6}
                                  .Make();
  const auto s = Simulate(problem, EvenLayout(problem, 4, 2, 1));
  std::vector<double> until(8, 0), computed(8, 0);
  for (const Span& span : s.timeline) {
    const auto rank = static_cast<std::size_t>(span.rank);
    ASSERT_LT(rank, until.size());
    EXPECT_LT(span.begin, span.end);
    EXPECT_LE(span.end, s.step_seconds.front() + kTiny);
    if (span.activity == Activity::kForward || span.activity == Activity::kBackward)
      computed[rank] += span.end - span.begin;
    if (span.activity == Activity::kExchange) continue;
    EXPECT_GE(span.begin, until[rank] - kTiny);
    until[rank] = span.end;
  }
  for (const double seconds : computed) EXPECT_NEAR(seconds, 4 * 2 * 0.3, kTiny);
}

// Random clusters that compute most of the time: the formulas of docs/planning.md and the events
// must agree within a few percent.
TEST(SimulatorTest, AgreesWithThePlannersFormulasWhereComputingDominates) {
  std::mt19937 random(5);
  auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  double sum = 0;
  const int cases = 60;
  for (int i = 0; i < cases; ++i) {
    const int stages = 1 << (random() % 3), data = 1 + static_cast<int>(random() % 4);
    const int micro_batches = 4 + static_cast<int>(random() % 12);
    PlanProblem problem = EvenProblem{.devices = stages * data,
                                      .layers = 8,
                                      .global_batch = 2 * data * micro_batches,
                                      .gradient_bytes = 2e6,
                                      .boundary_bytes = 1e5}
                              .Make();
    problem.kinds.assign(3, problem.kinds[0]);
    for (DeviceKind& kind : problem.kinds) {
      const double speed = draw(1, 3);
      for (LayerSeconds& l : kind.layers) {
        l.forward = {0.001, draw(0.05, 0.1) / speed};
        l.backward = {0.001, draw(0.1, 0.2) / speed};
        l.weight_gradients = {};
        l.update = 0.01;
      }
    }
    for (ProblemDevice& device : problem.devices) device.kind = static_cast<int>(random() % 3);
    for (int a = 0; a < stages * data; ++a)
      for (int b = 0; b < stages * data; ++b) problem.links.At(a, b) = {1e-4, draw(1e8, 1e9)};
    const Layout layout = EvenLayout(problem, stages, data, 2);
    const double formula = CostOf(problem, layout).step;
    const double played = StepOf(problem, layout);
    EXPECT_NEAR(played / formula, 1, 0.12)
        << stages << " stages, " << data << " replicas, " << micro_batches << " micro-batches";
    sum += std::abs(played / formula - 1);
  }
  EXPECT_LT(sum / cases, 0.03);
}

}  // namespace
}  // namespace adaptive_train::simulator_test
