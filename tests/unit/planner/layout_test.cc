// The formulas of docs/planning.md against values computed by hand, and layouts that are not well
// formed.
#include "launcher/planner/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "launcher/planner/check_problem.h"
#include "launcher/planner/groups.h"
#include "launcher/planner/ring.h"
#include "launcher/planner/shares.h"
#include "tests/unit/planner/small_problem.h"

namespace adaptive_train::layout_test {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CostOf, OneDeviceTakesTheSumOfItsMicroBatches) {
  PlanProblem problem = ProblemOf({2}, 3, 5);
  problem.kinds[0].layers[1].forward.fixed = 0.25;
  const StepCost cost = CostOf(problem, Replicas({{5, 2}}, 3));
  EXPECT_DOUBLE_EQ(cost.step, 5 * 3 * 3 / 2.0 + 3 * 0.25);
  EXPECT_DOUBLE_EQ(cost.compute, cost.step);
}

TEST(CostOf, PipelineFillsThenFollowsItsSlowestStage) {
  PlanProblem problem = ProblemOf({1, 1}, 3, 4);
  problem.links = LinkTable(2, {0.5, 10});
  // Stages of 6 and 3 seconds; a transfer and its answer take 2 x (0.5 + 1).
  const StepCost cost = CostOf(problem, Pipeline({0, 2, 3}, 4, 1));
  EXPECT_DOUBLE_EQ(cost.step, (6 + 3 + 3) + 3 * std::max(6.0, 12.0 / 2));
  EXPECT_DOUBLE_EQ(cost.compute, 24);
  EXPECT_DOUBLE_EQ(cost.bubble, 3);
  EXPECT_DOUBLE_EQ(cost.activations, 3);
  problem.links = LinkTable(2, {2.5, 10});  // 2 x (2.5 + 1) = 7: now the round trip is the period
  EXPECT_DOUBLE_EQ(CostOf(problem, Pipeline({0, 2, 3}, 4, 1)).step, 16 + 3 * 8);
}

TEST(CostOf, GradientsHideBehindTheLastBackwardButForTheFirstLayer) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 2);
  problem.links = LinkTable(2, {0.25, 1000});
  // Ring of two: 2 x 1 x (2 x 0.25 + V / (2 x 1000)); backward takes 4 seconds.
  StepCost cost = CostOf(problem, Replicas({{1, 1}, {1, 1}}, 2));
  EXPECT_DOUBLE_EQ(cost.gradients, 2 * (0.5 + 100 / 2000.0));
  problem.links = LinkTable(2, {0.25, 10});
  cost = CostOf(problem, Replicas({{1, 1}, {1, 1}}, 2));
  EXPECT_DOUBLE_EQ(cost.gradients, 2 * (0.5 + 200 / 20.0) - 4);
  problem.layers[0].compressed_bytes = 20;
  problem.layers[0].compression_s = 0.125;
  Layout layout = Replicas({{1, 1}, {1, 1}}, 2);
  layout.compressed[0] = true;
  EXPECT_DOUBLE_EQ(CostOf(problem, layout).gradients, 2 * (0.5 + 120 / 20.0) - 4 + 0.125);
}

TEST(CostOf, MovingMessagesTakesTimeFromComputing) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 2);
  for (DeviceKind& kind : problem.kinds) kind.transfer_s_per_byte = 0.01;
  problem.links = LinkTable(2, {0, 1e9});
  // Backward hides the last layer's ring, but not what moving its 100 bytes in and out takes.
  const StepCost cost = CostOf(problem, Replicas({{1, 1}, {1, 1}}, 2));
  EXPECT_DOUBLE_EQ(cost.gradients, 2 * 0.01 * 100);
  EXPECT_DOUBLE_EQ(cost.compute, 2 * 3 + 2 * 0.01 * 100);
  EXPECT_DOUBLE_EQ(cost.step, cost.gradients + cost.compute);
  // Each of two passes moves 10 bytes on either side of the boundary.
  EXPECT_DOUBLE_EQ(CostOf(problem, Pipeline({0, 1, 2}, 2, 1)).compute, 2 * (3 + 2 * 10 * 0.01));
}

TEST(CostOf, StagesWaitForLastBackwardsThatTheExchangeSlows) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, 5, 4);
  for (DeviceKind& kind : problem.kinds) kind.transfer_s_per_byte = 0.01;
  problem.links = LinkTable(4, {0, 1e12});
  Layout layout = Pipeline({0, 2, 5}, 2, 1);
  layout.data = 2;
  layout.devices = {0, 1, 2, 3};
  layout.rings = {{0, 1}, {0, 1}};
  layout.shares = {{2, 1}, {2, 1}};
  // Passes of a micro-batch take 6.2 and 9.2 seconds. Moving all layers but the first takes 2 and 4.
  const StepCost cost = CostOf(problem, layout);
  EXPECT_NEAR(cost.compute, 2 * 9.2 + 4, 1e-9);
  EXPECT_NEAR(cost.bubble, 6.2 + 2, 1e-9);
  EXPECT_NEAR(cost.gradients, 2, 1e-9);
  EXPECT_NEAR(cost.step, 6.2 + 2 * 9.2 + 2 + 4 + 2, 1e-9);
}

TEST(CostOf, StandingUpdateAndTiedEmbeddingsCount) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 2);
  problem.devices[1].standing = 0.5;
  problem.kinds[1].layers[1].update = 3;
  problem.links = LinkTable(2, {1, 10});
  problem.tied = true;
  problem.tied_bytes = 40;
  const StepCost cost = CostOf(problem, Pipeline({0, 1, 2}, 2, 2));
  EXPECT_DOUBLE_EQ(cost.update, 6);
  EXPECT_DOUBLE_EQ(cost.gradients, 2 + 40 * 0.2);
  EXPECT_DOUBLE_EQ(cost.step, 6 + 12 + 2 + 20 * 0.2 + 6 + 10);
}

TEST(CostOf, TensorRanksDivideWorkAndTalkInsideTheirNode) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 2);
  for (ProblemDevice& device : problem.devices) device.node = 0;
  problem.kinds[0].layers[1].update = problem.kinds[1].layers[1].update = 5;
  problem.layers[0].forward_sums = {{2, 0.5}, 20, 0};
  problem.layers[1].forward_sums = {{1, 0}, 10, 3};
  problem.layers[1].backward_sums[0] = {{2, 0}, 20, 0};
  problem.layers[1].whole_work = 0.5;
  problem.layers[1].whole_parameters = 0.2;
  problem.links = LinkTable(1, {0.01, 100});
  Layout layout = Replicas({{2, 2}}, 2);
  layout.tensor = 2;
  layout.devices = {0, 1};
  // Two samples: 3 sums of 40 bytes together, then one of 20 and 12, and two of 40 in backward.
  const double sums = 2 * (2 - 1) * ((3 + 1 + 2) * 0.01 + (40 + 20 + 12 + 40) / (2 * 100.0));
  const double passes = 2 * 3 * 0.5 + 2 * 3 * 0.75, update = 5 * 0.6;
  EXPECT_DOUBLE_EQ(CostOf(problem, layout).step, passes + sums + update);
  problem.links = LinkTable(1, {0.01, 0});
  EXPECT_TRUE(std::isinf(CostOf(problem, layout).step)) << "sums over no link";
}

TEST(CostOf, TensorRanksThatShareAHeadExchangeItsKeysAndValues) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 2);
  for (ProblemDevice& device : problem.devices) device.node = 0;
  problem.layers[0].forward_sums = problem.layers[0].backward_sums[0] = {{1, 0}, 20, 0};
  problem.layers[0].head_sums = {{0.5, 0}, 10, 0};
  problem.layers[0].kv_heads = 2;
  problem.layers[0].activation_bytes = {100, 100, 100};
  problem.layers[0].kv_head_bytes = {40, 40, 0};
  problem.links = LinkTable(1, {0.01, 100});
  Layout layout = Replicas({{2, 2}}, 2);
  layout.tensor = 2;
  layout.devices = {0, 1};
  const double before = CostOf(problem, layout).step;
  EXPECT_DOUBLE_EQ(problem.layers[0].ActivationBytes(0, 2), 50);
  problem.layers[0].kv_heads = 1;
  // Two samples, forward and backward.
  EXPECT_DOUBLE_EQ(CostOf(problem, layout).step, before + 2 * 2 * (0.5 * 0.01 + 2 * 10 / 200.0));
  EXPECT_DOUBLE_EQ(problem.layers[0].ActivationBytes(0, 2), 50 + 40 * 0.5);
  EXPECT_DOUBLE_EQ(problem.layers[0].ActivationBytes(2, 2), 50);
}

TEST(PlanProblem, TensorRanksThatShareRowsSendTheirOwn) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 2);
  problem.layers.front().boundary_bytes = 100;
  EXPECT_DOUBLE_EQ(problem.MessageBytes(4, 2, 2), 800);
  problem.shares_rows = true;
  EXPECT_DOUBLE_EQ(problem.MessageBytes(4, 2, 2), 400);
  EXPECT_DOUBLE_EQ(problem.BoundaryBytes(0, 2, 2, 4), 200);
}

TEST(CostOf, PairsThatCannotReachEachOtherTakeForever) {
  PlanProblem problem = ProblemOf({1, 1}, 2, 2);
  problem.links.At(1, 0).bytes_per_second = 0;
  EXPECT_TRUE(std::isinf(CostOf(problem, Replicas({{1, 1}, {1, 1}}, 2)).step));
}

TEST(MemoryOf, AddsWhatAStageHolds) {
  PlanProblem problem = ProblemOf({1, 1}, 3, 8);
  for (ProblemLayer& layer : problem.layers) {
    layer.optimizer_bytes = 200;
    layer.activation_bytes = {7, 5, 1};
  }
  problem.base_bytes = 1000;
  problem.rank_bytes[1] = {{3, 3, 3}, {10, 30}};
  problem.snapshot_share = 2;
  // Two micro-batches of 2 on the first stage, one on the second; four messages of two samples.
  const double messages = 4 * 2 * 10;
  EXPECT_THAT(MemoryOf(problem, Pipeline({0, 2, 3}, 8, 2)),
              ElementsAre(1000 + 6 + 30 + 2 * (100 + 100 + 200 + 200) + 2 * 2 * 14 + messages,
                          1000 + 6 + 30 + 600 + 2 * 1 * 7 + messages));
  Layout sharded = Replicas({{4, 1}, {4, 1}}, 3);
  sharded.shard = 2;
  // Of each layer: parameters, half a snapshot of two, half the gradients and moments, and all is on
  // its way, twice.
  EXPECT_THAT(MemoryOf(problem, sharded)[0], 1000 + 3 + 10 + 3 * (100 + 100 + 50 + 100 + 200) + 21);
  // Held back by compression: only where something is exchanged.
  problem.feedback_copies = 2;
  EXPECT_THAT(MemoryOf(problem, sharded)[0],
              1000 + 3 + 10 + 3 * (100 + 100 + 50 + 100 + 200 + 200) + 21);
  // Where messages, counted there, are all that goes, a chunk's sums are whole at most.
  problem.compress_from_start = true;
  EXPECT_THAT(MemoryOf(problem, sharded)[0],
              1000 + 3 + 10 + 3 * (100 + 100 + 50 + 100 + 50 + 200) + 21);
  EXPECT_THAT(MemoryOf(problem, Pipeline({0, 2, 3}, 8, 2))[1],
              1000 + 6 + 30 + 600 + 2 * 1 * 7 + messages);
}

TEST(MemoryOf, WithoutAFlushThereAreTwoVersionsOfTheWeightsAndTwoStepsGradients) {
  PlanProblem problem = ProblemOf({1, 1}, 3, 8), larger = problem;
  problem.tied = larger.tied = true;
  problem.tied_bytes = larger.tied_bytes = 40;
  for (ProblemLayer& layer : larger.layers) layer.parameter_bytes += 10;
  Layout layout = Pipeline({0, 2, 3}, 8, 2);
  const auto growth = [&](ScheduleKind kind) {
    layout.schedule = kind;
    std::vector<double> bytes = MemoryOf(larger, layout);
    const std::vector<double> less = MemoryOf(problem, layout);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] -= less[i];
    return bytes;
  };
  // The last stage has a copy of the shared matrix: .4 of a layer's gradients.
  EXPECT_THAT(growth(ScheduleKind::kGPipe), ElementsAre(20, 10 + 4));
  EXPECT_THAT(growth(ScheduleKind::kPipeDream2Bw), ElementsAre(40, 20 + 8));
  larger = problem;
  larger.tied = problem.tied = false;
  for (ProblemLayer& layer : larger.layers) layer.gradient_bytes += 10;
  EXPECT_THAT(growth(ScheduleKind::kGPipe), ElementsAre(20, 10));
  EXPECT_THAT(growth(ScheduleKind::kPipeDream2Bw), ElementsAre(40, 20));
}

TEST(MemoryOf, TensorRanksHoldTheirPartAndWhatAllHave) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, 2, 4);
  problem.rank_bytes = {{1, {{3, 3, 3}, {50}}}, {2, {{2, 2, 2}, {10, 30}}}};
  problem.tied = true;
  problem.tied_bytes = 40;
  for (ProblemLayer& layer : problem.layers) {
    layer.optimizer_bytes = 200;
    layer.activation_bytes = {7, 5, 1};
    layer.whole_activation_bytes = {3, 1, 1};
    layer.whole_parameters = 0.2;
  }
  Layout layout = Pipeline({0, 1, 2}, 4, 2);
  layout.tensor = 2;
  layout.devices = {0, 1, 2, 3};
  const double kept = 0.6 * (100 + 100 + 200), messages = 4 * 2 * 10;
  const double first = 30 + 2 * 2 + kept + 2 * 2 * 5 + messages + 20;
  const double last = 30 + 2 * 2 + kept + 2 * 1 * 5 + messages + 40;
  EXPECT_THAT(MemoryOf(problem, layout), ElementsAre(first, first, last, last));
  EXPECT_EQ(problem.CommonBytes(Recompute::kNone, 1, 1), 53);
  EXPECT_EQ(problem.CommonBytes(Recompute::kNone, 1, 8), 12) << "as of the next fewer ranks";
}

TEST(BoundaryBytes, AreMessagesAndWhatIsTied) {
  PlanProblem problem = ProblemOf({1, 1, 1}, 3, 8);
  EXPECT_EQ(problem.BoundaryBytes(0, 1, 2, 1), 0);
  EXPECT_EQ(problem.BoundaryBytes(0, 3, 2, 1), 4 * 2 * 10);
  EXPECT_EQ(problem.BoundaryBytes(1, 3, 2, 1), 8 * 2 * 10);
  problem.tied = true;
  problem.tied_bytes = 40;
  EXPECT_EQ(problem.BoundaryBytes(0, 3, 2, 1), 4 * 2 * 10 + 40)
      << "the copy's gradient arrives here";
  EXPECT_EQ(problem.BoundaryBytes(1, 3, 2, 1), 8 * 2 * 10);
  EXPECT_EQ(problem.BoundaryBytes(2, 3, 2, 1), 4 * 2 * 10 + 80) << "a copy and its gradient";
}

TEST(PassingGradientBytes, AreTheLargestLayersAndWhatIsTied) {
  PlanProblem problem = ProblemOf({1, 1}, 4, 8);
  problem.layers[1].gradient_bytes = problem.layers[2].gradient_bytes = 300;
  EXPECT_EQ(problem.PassingGradientBytes(1), 300);
  // The shared matrix waits beside the largest layer, not another layer as large.
  problem.tied = true;
  problem.tied_bytes = 40;
  EXPECT_EQ(problem.PassingGradientBytes(1), 340);
  problem.layers[0].whole_parameters = problem.layers[3].whole_parameters = 1;
  EXPECT_EQ(problem.PassingGradientBytes(4), 100 + 10);
  // The first layer, which has the matrix, passes when all others have passed.
  problem.layers[0].gradient_bytes = 500;
  EXPECT_EQ(problem.PassingGradientBytes(1), 500);
}

// 16 MiB are on their way at most.
TEST(ShardedGradientBytes, AreTheOwnAndWhatWaits) {
  PlanProblem problem = ProblemOf({1, 1}, 4, 8);
  EXPECT_EQ(problem.OnTheirWayShare(), 1);
  for (ProblemLayer& layer : problem.layers) layer.gradient_bytes = 16 << 20;
  EXPECT_EQ(problem.OnTheirWayShare(), 0.25);
  EXPECT_EQ(problem.ExchangeCopies(2, 4), 0.5);
  EXPECT_EQ(ShardedGradientBytes(400, 4, 30, 0.25), 100 + 30);
  EXPECT_EQ(ShardedGradientBytes(400, 4, 30, 0.9375), 100 + 25);
  EXPECT_EQ(ShardedGradientBytes(400, 4, 30, 1), 100);
  EXPECT_EQ(ShardedGradientBytes(400, 1, 30, 0.25), 400);
}

TEST(Scratch, FollowsTheLineThroughTheLastTwo) {
  RankBytes bytes;
  EXPECT_EQ(bytes.Scratch(4), 0);
  bytes.scratch = {10, 15, 30};
  EXPECT_EQ(bytes.Scratch(2), 15);
  EXPECT_EQ(bytes.Scratch(5), 60);
}

TEST(CheckLayout, NamesWhatIsWrong) {
  const PlanProblem problem = ProblemOf({1, 1}, 2, 4);
  const Layout good = Replicas({{2, 1}, {2, 1}}, 2);
  EXPECT_TRUE(CheckLayout(problem, good));
  const auto why = [&](auto change) {
    Layout bad = good;
    change(bad);
    const auto checked = CheckLayout(problem, bad);
    return checked ? std::string("accepted") : checked.error().message;
  };
  EXPECT_THAT(why([](Layout& l) { l.devices = {0, 0}; }), HasSubstr("used twice"));
  EXPECT_THAT(why([](Layout& l) { l.devices = {0, 5}; }), HasSubstr("no device 5"));
  EXPECT_THAT(why([](Layout& l) { l.devices = {0}; }), HasSubstr("2 places"));
  EXPECT_THAT(why([](Layout& l) { l.cut = {0, 1}; }), HasSubstr("cover 0 to 2"));
  EXPECT_THAT(why([](Layout& l) { l.cut = {0, 0, 2}; }), HasSubstr("stage 0 has no layer"));
  EXPECT_THAT(why([](Layout& l) { l.shares[0].samples = 1; }), HasSubstr("add up to 3"));
  EXPECT_THAT(why([](Layout& l) { l.rings[0] = {0, 0}; }), HasSubstr("each replica once"));
  PlanProblem small = problem;
  small.devices[1].memory_bytes = 300;
  const auto checked = CheckLayout(small, good);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("device 1 needs 500 bytes, 270 may be used"));
}

TEST(CheckProblem, RefusesWhatIsNotANumber) {
  EXPECT_TRUE(CheckProblem(ProblemOf({1, 1}, 2, 4)));
  const auto why = [](auto change) {
    PlanProblem bad = ProblemOf({1, 1}, 2, 4);
    change(bad);
    const auto checked = CheckProblem(bad);
    return checked ? std::string("accepted") : checked.error().message;
  };
  const double nan = std::nan(""), infinite = INFINITY;
  EXPECT_THAT(why([&](PlanProblem& p) { p.kinds[1].layers[0].forward.per_sample = nan; }),
              HasSubstr("seconds of layer 0"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.kinds[1].layers[1].backward.per_sample = 0; }),
              HasSubstr("seconds of layer 1"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.links.At(0, 1).bytes_per_second = infinite; }),
              HasSubstr("link from node 0 to node 1"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.links.At(1, 0).latency_s = -1; }),
              HasSubstr("link from node 1 to node 0"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.devices[1].memory_bytes = 0; }), HasSubstr("device 1"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.devices[1].node = 7; }), HasSubstr("node 7"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.layers.clear(); }), HasSubstr("0 layers"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.layers[1].whole_work = 1.5; }),
              HasSubstr("layer 1: tensor ranks have 0 of its parameters and 1.5 of its work"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.layers[1].forward_sums.bytes = nan; }),
              HasSubstr("layer 1: bytes"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.global_batch = 0; }), HasSubstr("global_batch is 0"));
  EXPECT_THAT(why([&](PlanProblem& p) { p.choices.tensor.clear(); }), HasSubstr("tensor"));
}

TEST(RingFinder, AvoidsTheSlowLink) {
  LinkTable links(4, {1e-6, 100});
  links.At(0, 1) = links.At(1, 0) = {1e-6, 1};
  links.At(2, 3) = links.At(3, 2) = {1e-6, 1};
  RingFinder rings(links);
  const int nodes[] = {0, 1, 2, 3};
  EXPECT_EQ(rings.Speed(nodes).bytes_per_second, 100);
  const auto order = rings.Order(nodes);
  EXPECT_EQ(SpeedOfRing(links, order).bytes_per_second, 100);
}

TEST(RingFinder, CrossesBetweenSwitchesTwiceOnly) {
  // Twelve nodes on two switches; twenty members, some on the same node.
  LinkTable links(12, {1e-6, 10});
  for (int a = 0; a < 12; ++a)
    for (int b = 0; b < 12; ++b)
      if (a % 2 == b % 2) links.At(a, b).bytes_per_second = a == b ? 1000 : 100;
  RingFinder rings(links);
  std::vector<int> nodes;
  for (int i = 0; i < 20; ++i) nodes.push_back(i % 12);
  const std::vector<int> order = rings.Order(nodes);
  int crossings = 0, inside = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int from = nodes[static_cast<std::size_t>(order[i])];
    const int to = nodes[static_cast<std::size_t>(order[(i + 1) % order.size()])];
    crossings += from % 2 != to % 2;
    inside += from == to;
  }
  EXPECT_EQ(order.size(), 20U);
  EXPECT_EQ(crossings, 2);
  EXPECT_EQ(inside, 8);
}

TEST(ShareOut, IsTheLeastMaximum) {
  // Against all ways to share 9 micro-batches between three replicas.
  const std::vector<PipelineReplica> replicas{{5, 1, 9}, {2, 3, 9}, {1, 1.5, 4}};
  std::vector<std::int64_t> counts;
  ASSERT_TRUE(ShareOut(std::span<const PipelineReplica>(replicas), 9, counts));
  const auto slowest = [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    return std::max({5 + (static_cast<double>(a) - 1), 2 + 3 * (static_cast<double>(b) - 1),
                     1 + 1.5 * (static_cast<double>(c) - 1)});
  };
  double best = 1e9;
  for (std::int64_t a = 1; a <= 7; ++a)
    for (std::int64_t b = 1; a + b <= 8; ++b)
      if (9 - a - b <= 4) best = std::min(best, slowest(a, b, 9 - a - b));
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 9);
  EXPECT_DOUBLE_EQ(slowest(counts[0], counts[1], counts[2]), best);
  EXPECT_FALSE(ShareOut(std::span<const PipelineReplica>(replicas), 2, counts));
  EXPECT_FALSE(ShareOut(std::span<const PipelineReplica>(replicas), 23, counts));
}

TEST(ShareOut, CountsTheFixedCostOfMicroBatches) {
  const std::vector<WholeReplica> replicas{{10, 1, 4, 4}, {0, 2, 100, 100}};
  std::vector<std::int64_t> counts;
  ASSERT_TRUE(ShareOut(std::span<const WholeReplica>(replicas), 12, counts));
  // Four on the first take 14 s, five would take 25; eight on the second take 16.
  EXPECT_THAT(counts, ElementsAre(4, 8));
}

TEST(ShareOut, FindsCountsThatMemoryAllowsWithGaps) {
  // Asked for micro-batches of 3 where 2 fit: 1, 2 or 4 samples can be done, 3 cannot.
  const WholeReplica replica{0, 1, 3, 2};
  EXPECT_TRUE(replica.Allows(4));
  EXPECT_FALSE(replica.Allows(3));
  const std::vector<WholeReplica> replicas{replica, replica, replica};
  std::vector<std::int64_t> counts;
  ASSERT_TRUE(ShareOut(std::span<const WholeReplica>(replicas), 9, counts));
  EXPECT_THAT(counts, testing::UnorderedElementsAre(1, 4, 4));
  EXPECT_FALSE(ShareOut(std::span<const WholeReplica>(replicas), 11, counts));
}

TEST(ShareBeside, HidesMoreOfTheExchange) {
  // The first has micro-batches of 2: with three samples its last pass is over one, with two over
  // two, and the other has time for one more.
  const std::vector<WholeReplica> replicas{{0, 3, 2, 2, 0, 2}, {0, 1, 100, 100, 0, 1}};
  std::vector<std::int64_t> counts{3, 3};
  EXPECT_DOUBLE_EQ(ShareBeside({20, 1}, replicas, counts), 6 + 20 - 4);
  EXPECT_THAT(counts, ElementsAre(2, 4));
}

TEST(ShareBeside, KeepsWhatIsBest) {
  const WholeReplica replica{0, 3, 2, 2, 0, 1};
  const std::vector<WholeReplica> replicas{replica, replica};
  std::vector<std::int64_t> counts{3, 3};
  EXPECT_DOUBLE_EQ(ShareBeside({20, 1}, replicas, counts), 9 + 20 - 1);
  EXPECT_THAT(counts, ElementsAre(3, 3));
}

TEST(AllBundlings, MixedNodesAreBundledInSeveralWays) {
  // The fastest two have little memory together; equal ones are the slow.
  PlanProblem problem = ProblemOf({3, 2, 2}, 2, 4);
  for (ProblemDevice& device : problem.devices) device.node = 0;
  problem.devices[0].memory_bytes = 100;
  problem.devices[2].kind = problem.devices[1].kind;
  problem.choices.tensor = {2};
  const SearchTables tables(problem);
  const auto all = AllBundlings(tables, 2);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0].front().devices, ElementsAre(0, 1));
  EXPECT_THAT(all[1].front().devices, ElementsAre(1, 2));
  const auto ideal = IdealGroups(tables, 2);
  ASSERT_EQ(ideal.size(), 1U);
  EXPECT_DOUBLE_EQ(ideal.front().limit, kMemoryShare * 1e12);
}

}  // namespace
}  // namespace adaptive_train::layout_test
