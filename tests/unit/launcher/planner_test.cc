// Plans for clusters as the launcher sees them: shares that follow what devices offer, memory that
// must fit, requests that cannot be met, words.
#include "launcher/planner/planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/device_kind.h"
#include "core/limits.h"
#include "core/runnable_plan.h"
#include "launcher/planner/device_slowness.h"
#include "launcher/planner/plan_words.h"

namespace adaptive_train::planner_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Cluster ClusterOf(const std::vector<std::optional<double>>& quotas, std::int64_t memory = 4 * kGiB,
                  int threads = 2) {
  Cluster cluster;
  cluster.name = "test";
  for (std::size_t i = 0; i < quotas.size(); ++i) {
    Node node;
    node.name = "n" + std::to_string(i + 1);
    node.processors.model = "cpu";
    node.processors.allowed_threads = threads;
    node.processors.quota_cpus = quotas[i];
    node.memory.total_bytes = memory;
    cluster.nodes.push_back(node);
  }
  cluster.devices = DevicesOf(cluster.nodes, {}, {});
  return cluster;
}

const ModelDims kDims{2, 2, 64, 32, 256, true};
const ModelShape kModel = ModelShape::Of(kDims);

/// As `run` asks, links fast enough not to matter.
Result<Plan> PlanOf(Cluster cluster, PlanRequest request, const Profile& profile = {}) {
  for (const Node& a : cluster.nodes) {
    for (const Node& b : cluster.nodes) cluster.links.push_back({a.name, b.name, 1e-9, 1e15});
  }
  request.runnable_only = true;
  if (!request.recompute) request.recompute = Recompute::kNone;
  auto made = MakePlan(cluster, kDims, {}, profile, request);
  if (!made) return tl::unexpected(made.error());
  return made->plan;
}

PlanRequest Batch(std::int64_t samples) {
  PlanRequest request;
  request.global_batch = samples;
  return request;
}

std::vector<std::int64_t> SharesOf(const Plan& plan) {
  std::vector<std::int64_t> shares;
  for (const RankPlan& rank : plan.ranks) shares.push_back(rank.samples);
  return shares;
}

TEST(MakePlan, OneRankADeviceWithEqualShares) {
  auto plan = PlanOf(ClusterOf({{}, {}, {}, {}}), Batch(10));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(SharesOf(*plan), ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(plan->ranks[2].first_sample, 6);
  EXPECT_EQ(plan->ranks[3].device.node, "n4");
  EXPECT_TRUE(PlanFromJson(ToJson(*plan))) << PlanFromJson(ToJson(*plan)).error().message;
  EXPECT_FALSE(plan->step_seconds) << "nothing was measured";
}

TEST(MakePlan, SharesAndThreadsFollowTheQuota) {
  auto plan = PlanOf(ClusterOf({2.0, 1.0, 0.5, 0.5}), Batch(16));
  ASSERT_TRUE(plan);
  EXPECT_THAT(SharesOf(*plan), ElementsAre(8, 4, 2, 2));
  EXPECT_EQ(plan->ranks[0].device.threads, 2);
  EXPECT_EQ(plan->ranks[3].device.threads, 1);
}

TEST(MakePlan, MovingGradientsCountsWhereNoProcessorIsLeftForIt) {
  PlanRequest request = Batch(8);
  request.data = 2;
  request.pipeline = 1;
  const auto seconds = [&](double quota, double transfer_s_per_byte) {
    Profile profile;
    for (const double cpus : {0.5, 2.0})
      profile.devices.push_back({fmt::format("a node of {}", cpus),
                                 cpus < 1 ? "cpu, 1 thread, 0.50 CPUs" : "cpu, 1 thread",
                                 1e9,
                                 1e9,
                                 {2, 0, 1},
                                 transfer_s_per_byte});
    request.threads = 1;
    auto plan = PlanOf(ClusterOf({quota, quota}), request, profile);
    EXPECT_TRUE(plan) << plan.error().message;
    return plan ? plan->parts.compute_s + plan->parts.gradients_s : 0;
  };
  const double bytes = 4.0 * static_cast<double>(kModel.total.parameters);
  // Half a CPU takes twice as long. All is sent once and received once.
  EXPECT_NEAR(seconds(0.5, 1e-6) - seconds(0.5, 0), 2 * 2 * bytes * 1e-6, 0.01 * bytes * 1e-6);
  EXPECT_LT(seconds(2, 1e-6) - seconds(2, 0), 1e-3) << "one CPU computes, the other moves messages";
}

TEST(MakePlan, EvenSharesWhereTheConfigurationSaysSo) {
  PlanRequest request = Batch(16);
  request.even_shares = true;
  auto plan = PlanOf(ClusterOf({2.0, 1.0, 0.75, 0.75}), request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(SharesOf(*plan), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(plan->why, Contains(HasSubstr("parallel.shares = even")));
}

TEST(MakePlan, SharesAreWholeMicroBatchesWhereTheseAreUnits) {
  PlanRequest request = Batch(24);
  request.micro_batch = 2;
  request.reproducible = true;
  auto plan = PlanOf(ClusterOf({2.0, 1.0, 1.0}), request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(SharesOf(*plan), ElementsAre(12, 6, 6));
  for (const RankPlan& rank : plan->ranks) EXPECT_EQ(rank.micro_batch, 2);
  EXPECT_THAT(plan->why, Contains(HasSubstr("train.reproducible = layout")));
  request.even_shares = true;
  plan = PlanOf(ClusterOf({2.0, 1.0, 1.0, 1.0, 1.0}), request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(SharesOf(*plan), ElementsAre(6, 6, 4, 4, 4));
}

TEST(MakePlan, FewerUnitsThanReplicasAreRefused) {
  PlanRequest request = Batch(4);
  request.micro_batch = 2;
  request.data = 3;
  EXPECT_TRUE(PlanOf(ClusterOf({{}, {}, {}}), request));
  request.reproducible = true;
  auto plan = PlanOf(ClusterOf({{}, {}, {}}), request);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(plan.error().message, HasSubstr("3 replicas need a micro-batch of 2 each"));
}

// One replica of 8 units keeps 3 sums beside its gradients, and the embedding's part of the tied
// matrix with as many.
TEST(MakePlan, CountsTheSumsOfUnits) {
  PlanRequest request = Batch(8);
  request.micro_batch = 1;
  const auto without = PlanOf(ClusterOf({{}}), request);
  request.reproducible = true;
  const auto with = PlanOf(ClusterOf({{}}), request);
  ASSERT_TRUE(without && with);
  const std::int64_t matrix = 4 * kDims.vocab * kDims.hidden;
  EXPECT_EQ(with->memory_bytes - without->memory_bytes,
            3 * kModel.total.gradient_bytes + 4 * matrix);
}

TEST(MakePlan, SharesFollowTheThreadsThatRanksReallyUse) {
  PlanRequest request = Batch(16);
  request.threads = 1;
  auto plan = PlanOf(ClusterOf({2.0, 8.0}, 4 * kGiB, 8), request);
  ASSERT_TRUE(plan);
  EXPECT_THAT(SharesOf(*plan), ElementsAre(8, 8));
}

TEST(MakePlan, FewerSamplesThanDevicesLeavesTheSlowestOut) {
  auto plan = PlanOf(ClusterOf({0.2, 2.0, 1.0}), Batch(2));
  ASSERT_TRUE(plan);
  ASSERT_GE(plan->ranks.size(), 1u);
  for (const RankPlan& rank : plan->ranks) EXPECT_NE(rank.device.node, "n1");
  EXPECT_THAT(testing::PrintToString(plan->why), HasSubstr("n1 is left out"));
}

TEST(MakePlan, ANodeIsNamedOnceHoweverManyDevicesAreLeftOut) {
  Cluster cluster = ClusterOf({0.2, 2.0, 1.0});
  cluster.devices.push_back(cluster.devices.front());
  cluster.devices.back().index = 1;
  auto plan = PlanOf(cluster, Batch(2));
  ASSERT_TRUE(plan);
  const auto named = std::count_if(plan->why.begin(), plan->why.end(), [](const auto& line) {
    return line.find("n1 is left out") != std::string::npos;
  });
  EXPECT_EQ(named, 1) << testing::PrintToString(plan->why);
}

TEST(MakePlan, MoreRanksThanDevicesShareNodes) {
  PlanRequest request = Batch(10);
  request.data = 3;
  auto plan = PlanOf(ClusterOf({{}, {}}), request);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->ranks.size(), 3u);
  EXPECT_EQ(plan->ranks[1].device.node, "n1");
  EXPECT_EQ(plan->ranks[2].device.node, "n2");
  EXPECT_EQ(plan->ranks[0].device.threads, 1);
  EXPECT_EQ(plan->ranks[2].device.threads, 2);
}

TEST(MakePlan, GpusAreNotShared) {
  Cluster cluster = ClusterOf({{}}, 400 * kGiB);
  cluster.devices.clear();
  for (int i = 0; i < 7; ++i)
    cluster.devices.push_back({"n1", "cuda", i, "gpu", 40 * kGiB, 1, 0, 1e14, 1e12});
  PlanRequest request = Batch(8);
  request.recompute = Recompute::kNone;
  request.tensor = 2;
  request.data = 4;
  auto refused = MakePlan(cluster, kDims, {}, {}, request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(refused.error().message, HasSubstr("7"));
  request.data = 3;
  EXPECT_TRUE(MakePlan(cluster, kDims, {}, {}, request));
}

TEST(MakePlan, MicroBatchesShrinkUntilTheyFitTheMemory) {
  const auto memory =
      static_cast<std::int64_t>(static_cast<double>(kModel.PeakBytes(5, 1, 2)) / 0.9) + 4096;
  auto plan = PlanOf(ClusterOf({{}}, memory), Batch(16));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_LE(plan->ranks[0].micro_batch, 5);
  EXPECT_GE(plan->ranks[0].micro_batch, 4);
  EXPECT_LE(static_cast<double>(plan->memory_bytes), 0.9 * static_cast<double>(memory));
  PlanRequest large = Batch(16);
  large.micro_batch = 8;
  auto too_much = PlanOf(ClusterOf({{}}, memory), large);
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().exit_code, ExitCode::kNoPlan);
  EXPECT_FALSE(PlanOf(ClusterOf({{}}, kModel.PeakBytes(1, 1, 2) / 2), Batch(16)));
}

TEST(MakePlan, SaysWhatLimitsMemory) {
  const auto limited = [](std::int64_t bytes) {
    Cluster cluster = ClusterOf({{}, {}});
    for (Node& node : cluster.nodes) node.memory.limits = {{bytes, "the job's --mem"}};
    cluster.devices = DevicesOf(cluster.nodes, {}, {});
    return PlanOf(cluster, Batch(16));
  };
  const auto plan = limited(kGiB);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks[0].device.memory_bytes, kGiB);
  EXPECT_THAT(plan->why, Contains("memory of n1: 1.0 GiB of 4.0 GiB: the job's --mem, as on 1 "
                                  "more"));
  const auto too_little = limited(kGiB / 8192);
  ASSERT_FALSE(too_little);
  EXPECT_THAT(too_little.error().message, HasSubstr("of 4.0 GiB: the job's --mem"));
}

TEST(MakePlan, NodesWhoseControlGroupsDifferByTheirNamesAreOneLine) {
  Cluster cluster = ClusterOf({{}, {}, {}});
  for (Node& node : cluster.nodes)
    node.memory.limits = {{node.name == "n3" ? kGiB : 2 * kGiB,
                           "control group /slurm_" + node.name + "/uid_1/job_7/step_0"}};
  cluster.devices = DevicesOf(cluster.nodes, {}, {});
  const auto plan = PlanOf(cluster, Batch(16));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->why, Contains("memory of n3: 1.0 GiB of 4.0 GiB: control group "
                                  "/slurm_n3/uid_1/job_7/step_0, as on 2 more"));
}

TEST(MakePlan, MemoryIsWhatModelsArePredictedToNeed) {
  PlanRequest request = Batch(6);
  request.micro_batch = 3;
  request.threads = 1;
  auto plan = PlanOf(ClusterOf({{}, {}}), request);
  ASSERT_TRUE(plan);
  EXPECT_NEAR(static_cast<double>(plan->memory_bytes),
              static_cast<double>(kModel.PeakBytes(3, 2, 1)), 1.0);
}

TEST(MakePlan, TensorRanksNeedWhatTheirPartOfTheModelNeeds) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    PlanRequest request = Batch(3);
    request.micro_batch = 3;
    request.threads = 1;
    request.tensor = 2;
    request.data = request.pipeline = 1;
    request.shard = 0;
    request.recompute = Recompute::kNone;
    TrainingFormat format{precision};
    auto planned = MakePlan(ClusterOf({2.0}), kModel.dims, format, {}, request);
    ASSERT_TRUE(planned) << planned.error().message;
    format.row_ranks = 2;
    const ModelShape part = ModelShape::Of(kModel.dims.Part(2), format);
    // Two ranks' places in two halves of 1 MiB pieces, and where they add 16-bit values.
    const double sums = precision == Precision::kFp32 ? 4 << 20 : 6 << 20;
    EXPECT_NEAR(static_cast<double>(planned->plan.memory_bytes),
                static_cast<double>(part.PeakBytes(3, 1, 1)) + sums, 64.0);
  }
}

TEST(MakePlan, RefusesWhatCannotBe) {
  EXPECT_EQ(PlanOf(ClusterOf({}), Batch(4)).error().exit_code, ExitCode::kNoPlan);
  PlanRequest request = Batch(4);
  request.data = 5;
  auto refused = PlanOf(ClusterOf({{}}), request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("parallel.data = 5 needs"));
}

/// kDims has as many heads, so tensor ranks have few choices.
TEST(MakePlan, RefusesTensorRanksThatDoNotDivideAndNamesThoseThatDo) {
  ModelDims dims = kDims;
  dims.heads = dims.kv_heads = 8;
  dims.hidden = 64;
  const auto why = [&](std::int64_t tensor) {
    PlanRequest request = Batch(8);
    request.tensor = tensor;
    const auto made = MakePlan(ClusterOf({{}, {}}), dims, {}, {}, request);
    return made ? "planned" : made.error().message;
  };
  EXPECT_EQ(
      why(3),
      "no feasible plan: parallel.tensor = 3 ranks cannot share heads, kv_heads and ffn of the "
      "model (8, 8, 256): 2 or 4 can");
  EXPECT_THAT(why(9), HasSubstr("(8, 8, 256): 8 can"));
}

TEST(MakePlan, TakesTensorRanksWithTheBitsOfOneWhereAnyLayoutHasThem) {
  ModelDims dims = kDims;
  dims.heads = dims.kv_heads = 12;
  dims.hidden = 48;
  dims.ffn = 48;
  PlanRequest request = Batch(8);
  request.tensor = 3;
  EXPECT_TRUE(MakePlan(ClusterOf({{}, {}}), dims, {}, {}, request));
  request.reproducible = true;
  const auto refused = MakePlan(ClusterOf({{}, {}}), dims, {}, {}, request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("parallel.tensor = 3 with train.reproducible = \"layout\": 1, 2, 4 and 8"));
  request.tensor = 4;
  EXPECT_TRUE(MakePlan(ClusterOf({{}, {}}), dims, {}, {}, request));
  dims.kind = ModelKind::kLlama;
  dims.kv_heads = 2;
  const auto shared = MakePlan(ClusterOf({{}, {}}), dims, {}, {}, request);
  ASSERT_FALSE(shared);
  EXPECT_THAT(shared.error().message, HasSubstr("up to one for each of 2 kv_heads"));
  request.reproducible = false;
  EXPECT_TRUE(MakePlan(ClusterOf({{}, {}}), dims, {}, {}, request));
}

TEST(MakePlan, TakesMoreTensorRanksThanHeadsOfKeysIfTheseCanBeShared) {
  ModelDims dims = kDims;
  dims.kind = ModelKind::kLlama;
  dims.heads = 12;
  dims.kv_heads = 4;
  dims.hidden = 96;
  dims.ffn = 48;
  PlanRequest request = Batch(8);
  const auto why = [&](std::int64_t tensor) {
    request.tensor = tensor;
    const auto made = MakePlan(ClusterOf({{}, {}}), dims, {}, {}, request);
    return made ? "planned" : made.error().message;
  };
  EXPECT_EQ(why(4), "planned");
  EXPECT_THAT(why(6), HasSubstr("(12, 4, 48): 4 can"));
  EXPECT_THAT(why(12), HasSubstr("(12, 4, 48): 4 can"));  // 3 ranks cannot share 8 columns
  dims.kv_heads = 6;
  EXPECT_EQ(why(12), "planned");
}

/// Equal shares name the reason as well as free ones do.
TEST(MakePlan, EvenSharesOfMoreStagesThanLayersNameThoseThatFit) {
  PlanRequest request = Batch(8);
  request.even_shares = true;
  request.pipeline = 9;
  const auto refused = PlanOf(ClusterOf({{}, {}}), request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("parallel.pipeline = 4 or less"));
}

TEST(MakePlan, IsAPureFunction) {
  const Cluster cluster = ClusterOf({1.5, {}, 0.3});
  EXPECT_EQ(ToJson(*PlanOf(cluster, Batch(33))), ToJson(*PlanOf(cluster, Batch(33))));
}

/// Times of every layer on the kind of the first device; twice as long on the last one's.
Profile Measured(const Cluster& cluster) {
  Profile profile;
  const Evidence evidence{10, 0.01, 1e9};
  const std::string key = ModelKey(kModel);
  const std::string fast = DeviceKindName(cluster.devices.front()),
                    slow = DeviceKindName(cluster.devices.back());
  for (const char* layer : {"embedding", "block", "head"}) {
    for (const std::int64_t b : {1, 4}) {
      const double s = 0.001 + 0.01 * static_cast<double>(b);
      profile.layers.push_back({fast, key, layer, b, s, 2 * s, 0, 0.001, 0, evidence});
      if (slow != fast)
        profile.layers.push_back({slow, key, layer, b, 2 * s, 4 * s, 0, 0.002, 0, evidence});
    }
  }
  return profile;
}

TEST(MakePlan, MeasuredTimesDecideAndAreSaid) {
  // By CPUs the second node is four times as fast; measured, it is half as fast.
  const Cluster cluster = ClusterOf({0.5, 2.0});
  auto plan = PlanOf(cluster, Batch(12), Measured(cluster));
  ASSERT_TRUE(plan);
  EXPECT_THAT(SharesOf(*plan), ElementsAre(8, 4));
  ASSERT_TRUE(plan->step_seconds);
  // Four layers of 8 samples in one micro-batch: 3 x (1 + 10 x 8) ms each, and 1 ms of update.
  EXPECT_NEAR(*plan->step_seconds, 4 * (3 * 0.081) + 4 * 0.002, 0.02);
  EXPECT_LE(*plan->bound_seconds, *plan->step_seconds);
  EXPECT_THAT(ExplainPlan(*plan), HasSubstr("forward and backward"));
  EXPECT_THAT(ExplainPlan(*plan), HasSubstr("bound:"));
}

/// One line says what stages would have gained or lost; the numbers are those of --why.
TEST(MakePlan, SaysWhyItHasStagesOrNone) {
  Cluster cluster = ClusterOf({1, 1});
  const auto planned = [&](double bytes_per_second, PlanRequest request) {
    cluster.links = {{"n1", "n2", 1e-5, bytes_per_second}, {"n2", "n1", 1e-5, bytes_per_second}};
    const auto made = MakePlan(cluster, kDims, {}, Measured(cluster), request);
    EXPECT_TRUE(made) << made.error().message;
    return made ? made->plan : Plan();
  };
  const auto seconds_and = [](const std::string& words) {
    return Contains(AllOf(HasSubstr(words), HasSubstr(" s a step, "), HasSubstr(" s with ")));
  };
  const Plan whole = planned(1e11, Batch(8));
  EXPECT_EQ(whole.Pipeline(), 1);
  EXPECT_THAT(whole.why, Contains(HasSubstr("no pipeline stages: ")));
  // Few samples over a slow link: to sum gradients takes longer than to hand activations on.
  const Plan staged = planned(2e6, Batch(3));
  EXPECT_EQ(staged.Pipeline(), 2) << ExplainPlan(staged);
  EXPECT_THAT(staged.why, seconds_and("in stages: "));
  PlanRequest asked = Batch(8);
  asked.pipeline = 1;
  EXPECT_THAT(planned(1e11, asked).why, Not(Contains(HasSubstr("stages: "))))
      << "what was asked for needs no reason";
}

TEST(MakePlan, KeepsALayoutByHand) {
  const Cluster cluster = ClusterOf({0.5, 2.0});  // the second is half as fast as measured
  PlanRequest request = Batch(12);
  request.pipeline = 2;
  request.cut = {0, 1, 4};
  const auto plan = PlanOf(cluster, request, Measured(cluster));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(LayoutText(*plan), "E|ttL");
  EXPECT_EQ(plan->ranks[0].device.node, "n2");
  EXPECT_EQ(plan->ranks[1].device.node, "n1");
  EXPECT_THAT(plan->why, Contains("each stage's layers: parallel.layout"));
  EXPECT_THAT(DescribePlan(*plan, cluster, kModel), HasSubstr("\n  parallel.layout = \"E|ttL\"\n"));
}

TEST(MakePlan, ALayoutThatIsGivenBackMakesTheSamePlan) {
  const Cluster cluster = ClusterOf({0.5, 0.5, 2.0});
  PlanRequest request = Batch(12);
  request.pipeline = 2;
  const auto free = PlanOf(cluster, request, Measured(cluster));
  ASSERT_TRUE(free) << free.error().message;
  request.cut = {0};
  const auto stages = StageLayoutFromText(LayoutText(*free), static_cast<int>(kDims.layers));
  ASSERT_TRUE(stages) << stages.error().message;
  for (const StageLayers& stage : *stages) request.cut.push_back(stage.end_layer);
  const auto again = PlanOf(cluster, request, Measured(cluster));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(LayoutText(*again), LayoutText(*free));
  EXPECT_EQ(*again->step_seconds, *free->step_seconds);
  for (std::size_t r = 0; r < free->ranks.size(); ++r)
    EXPECT_EQ(again->ranks[r].device.node, free->ranks[r].device.node) << r;
}

/// Stages of an earlier job left each kind of device without one end of the model.
TEST(MakePlan, TimesOfLayersThatAKindLacksComeFromAnother) {
  const Cluster cluster = ClusterOf({0.5, 2.0});
  const Profile whole = Measured(cluster);
  Profile staged = whole;
  const std::string fast = DeviceKindName(cluster.devices.front());
  std::erase_if(staged.layers, [&](const LayerMeasurement& m) {
    return m.layer == (m.device_kind == fast ? "head" : "embedding");
  });
  const auto plan = PlanOf(cluster, Batch(12), staged);
  ASSERT_TRUE(plan);
  EXPECT_THAT(SharesOf(*plan), ElementsAre(8, 4));
  EXPECT_NEAR(*plan->step_seconds, *PlanOf(cluster, Batch(12), whole)->step_seconds, 1e-9);
  EXPECT_THAT(plan->why, Contains(HasSubstr("measured, those of head on another kind of device")));
  EXPECT_THAT(plan->why,
              Contains(HasSubstr("measured, those of embedding on another kind of device")));
}

TEST(MakePlan, ANodeThatFailedLatelyGetsLessAndIsNamed) {
  const Cluster cluster = ClusterOf({{}, {}});
  Profile profile = Measured(cluster);
  profile.nodes = {{"n2", 10, {{FailureKind::kNodeSilent, 11}}, 86400}};
  auto plan = PlanOf(cluster, Batch(12), profile);
  ASSERT_TRUE(plan);
  EXPECT_GT(plan->ranks[0].samples, 6);
  EXPECT_THAT(
      plan->why,
      Contains(HasSubstr("n2: silent 11 times in the last day: its time counts 2.00 times")));
}

TEST(MakePlan, ANodeSlowerThanItsKindGetsLess) {
  const Cluster cluster = ClusterOf({{}, {}, {}});
  const std::string kind = DeviceKindName(cluster.devices[0]);
  Profile profile;
  const Evidence evidence{2, 0.05, 1e9};
  profile.devices = {{"n1", kind, 1e11, 1e10, evidence},
                     {"n2", kind, 0.5e11, 0.5e10, evidence},
                     {"n3", kind, 1e11, 1e10, evidence}};
  auto plan = PlanOf(cluster, Batch(10), profile);
  ASSERT_TRUE(plan);
  EXPECT_THAT(SharesOf(*plan), ElementsAre(4, 2, 4));
  EXPECT_THAT(plan->why, Contains(HasSubstr("n2: 2.00 times as slow as others of its kind")));
}

/// Four devices of one kind as one measurement each found them beside others' work.
Profile NoisyDevices(const std::string& kind, const Evidence& evidence) {
  Profile profile;
  int node = 0;
  for (const double gflops : {12.3, 4.7, 4.0, 10.5})
    profile.devices.push_back({"n" + std::to_string(++node), kind, gflops * 1e9, 1e10, evidence});
  return profile;
}

TEST(MakePlan, OneSampleOfEachNodeMakesNoDifference) {
  const Cluster cluster = ClusterOf({{}, {}, {}, {}});
  const std::string kind = DeviceKindName(cluster.devices[0]);
  for (const Evidence& unsure : {Evidence{1, 0.0, 1e9}, Evidence{2, 0.4, 1e9}}) {
    auto plan = PlanOf(cluster, Batch(16), NoisyDevices(kind, unsure));
    ASSERT_TRUE(plan);
    EXPECT_THAT(SharesOf(*plan), ElementsAre(4, 4, 4, 4));
    EXPECT_THAT(plan->why, Contains(HasSubstr("differ, but not for sure: taken as equal")));
  }
  // Seen again and again, with little between the times, it is so.
  auto plan = PlanOf(cluster, Batch(16), NoisyDevices(kind, {8, 0.1, 1e9}));
  ASSERT_TRUE(plan);
  EXPECT_GT(SharesOf(*plan)[0], SharesOf(*plan)[2]);
}

TEST(SlownessOf, NeedsOccasionsAndDistanceBeyondTheSpread) {
  const auto shown = [](double own_flops, const Evidence& own) {
    Profile profile;
    for (const char* node : {"a", "b", "c"})
      profile.devices.push_back({node, "cpu", 1e11, 1e10, {4, 0.05, 0}});
    profile.devices.push_back({"d", "cpu", own_flops, 1e10, own});
    return SlownessOf(profile, "cpu", "d").shown;
  };
  EXPECT_EQ(shown(0.5e11, {1, 0, 0}), 1) << "seen once";
  EXPECT_DOUBLE_EQ(shown(0.5e11, {2, 0.05, 0}), 2);
  EXPECT_DOUBLE_EQ(shown(2e11, {2, 0.05, 0}), 0.5);
  EXPECT_EQ(shown(0.9e11, {20, 0, 0}), 1) << "too close";
  EXPECT_EQ(shown(0.5e11, {2, 0.8, 0}), 1) << "wavers";
  EXPECT_DOUBLE_EQ(shown(0.5e11, {20, 0.3, 0}), 2) << "wavers, but was seen often";
  EXPECT_EQ(SlownessOf({}, "cpu", "d").shown, 1);
}

/// Two equal nodes at so many bytes per second.
Plan PlanCompressing(double bytes_per_second, const CompressionRequest& compression) {
  Cluster cluster = ClusterOf({1, 1});
  cluster.links = {{"n1", "n2", 1e-5, bytes_per_second}, {"n2", "n1", 1e-5, bytes_per_second}};
  PlanRequest request = Batch(4);
  request.data = 2;
  request.runnable_only = true;
  request.compression = compression;
  auto made = MakePlan(cluster, kDims, {}, {}, request);
  EXPECT_TRUE(made);
  return made ? made->plan : Plan{};
}

TEST(MakePlan, CompressesWhereLinksAreSlowerThanCompressingIs) {
  const CompressionRequest where_it_pays{.always = false, .density = 0.1};
  const Plan slow = PlanCompressing(1e7, where_it_pays);
  EXPECT_THAT(slow.stages[0].compressed_layers, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(slow.why, Contains(HasSubstr("gains on 4 of 4 layers")));
  const Plan fast = PlanCompressing(1e11, where_it_pays);
  EXPECT_THAT(fast.stages[0].compressed_layers, ElementsAre());
  EXPECT_THAT(fast.why, Contains(HasSubstr("gains nothing")));
  // Asked for, it is counted also where it does not pay.
  const Plan asked = PlanCompressing(1e11, {.always = true, .density = 0.1});
  EXPECT_THAT(asked.stages[0].compressed_layers, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(asked.why, Contains(HasSubstr("as asked for")));
  EXPECT_EQ(NotRunnable(slow), "");
}

TEST(PriceAgain, IsWhatTheSamePlanCostsWithNewMeasurements) {
  Cluster cluster = ClusterOf({0.5, 2.0});
  PlanRequest request = Batch(12);
  request.runnable_only = true;
  request.recompute = Recompute::kNone;
  auto blind = MakePlan(cluster, kDims, {}, {}, request);
  ASSERT_TRUE(blind);
  EXPECT_FALSE(blind->plan.step_seconds);
  auto priced = PriceAgain(blind->plan, cluster, kDims, {}, Measured(cluster), request);
  ASSERT_TRUE(priced) << priced.error().message;
  ASSERT_TRUE(priced->step_seconds);
  auto best = MakePlan(cluster, kDims, {}, Measured(cluster), request);
  ASSERT_TRUE(best);
  EXPECT_LE(*best->plan.step_seconds, *priced->step_seconds);
  auto same = PriceAgain(best->plan, cluster, kDims, {}, Measured(cluster), request);
  ASSERT_TRUE(same);
  EXPECT_DOUBLE_EQ(*same->step_seconds, *best->plan.step_seconds);
  Plan elsewhere = best->plan;
  elsewhere.ranks[0].device.node = "n9";
  EXPECT_FALSE(PriceAgain(elsewhere, cluster, kDims, {}, {}, request));
}

TEST(PlaceSecondsOf, IsWhatRanksComputeByTheMeasurementsOfTheirDevices) {
  const Cluster cluster = ClusterOf({0.5, 2.0});
  for (const int stages : {1, 2}) {
    PlanRequest request = Batch(12);
    request.pipeline = stages;
    request.runnable_only = true;
    request.recompute = Recompute::kNone;
    const auto made = MakePlan(cluster, kDims, {}, Measured(cluster), request);
    ASSERT_TRUE(made) << made.error().message;
    const Plan& plan = made->plan;
    const auto places = PlaceSecondsOf(plan, cluster, kDims, {}, Measured(cluster), request);
    ASSERT_TRUE(places) << places.error().message;
    ASSERT_EQ(places->size(), 2u);
    for (const RankPlan& rank : plan.ranks) {
      const StageLayers& own = plan.stages[static_cast<std::size_t>(rank.stage)].chunks[0];
      const double layers =
          (own.end_layer - own.first_layer) * (rank.device.node == "n1" ? 1.0 : 2.0);
      const PlaceSeconds& place = (*places)[static_cast<std::size_t>(rank.rank)];
      EXPECT_NEAR(place.micro_batch.At(0), layers * 0.003, 1e-9);
      EXPECT_NEAR(place.micro_batch.At(5), layers * 0.153, 1e-9);
      EXPECT_NEAR(place.update, layers * 0.001, 1e-9);
    }
    EXPECT_FALSE(PlaceSecondsOf(plan, cluster, kDims, {}, {}, request)) << "nothing is measured";
  }
}

TEST(DevicesOf, SlurmsAllocationLimitsThreads) {
  Node node;
  node.name = "n1";
  node.processors.allowed_threads = 8;
  EXPECT_EQ(DevicesOf({node}, {3}, {})[0].threads, 3);
  EXPECT_EQ(DevicesOf({node}, {3}, 5)[0].threads, 5);
}

TEST(DescribePlan, SaysWhereAndWhy) {
  const Cluster cluster = ClusterOf({{}, {}});
  const std::string words = DescribePlan(*PlanOf(cluster, Batch(3)), cluster, kModel);
  EXPECT_THAT(words, HasSubstr("rank 1 on n2"));
  EXPECT_THAT(words, HasSubstr("2 sequences a step"));
  EXPECT_THAT(words, HasSubstr("not measured; taken as 2.00 equal CPUs"));
}

TEST(Planner, EvenSharesTakeAllDevicesInWholeTensorGroups) {
  Cluster cluster = ClusterOf({{}, {}});
  cluster.devices.clear();
  for (const char* node : {"n1", "n2"}) {
    for (int i = 0; i < 3; ++i) {
      Device device;
      device.node = node;
      device.index = i;
      device.memory_bytes = 4 * kGiB;
      device.product_flops = 1e11;
      cluster.devices.push_back(device);
    }
  }
  PlanRequest request = Batch(8);
  request.even_shares = true;
  request.tensor = 2;
  const auto plan = PlanOf(cluster, request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->tensor, 2);
  EXPECT_THAT(plan->why, Contains(HasSubstr("n1 is left out: 1 left over on its node")));
  for (std::size_t rank = 0; rank < plan->ranks.size(); rank += 2)
    EXPECT_EQ(plan->ranks[rank].device.node, plan->ranks[rank + 1].device.node);
}

TEST(Planner, TheReasonForANodeLeftOutIsTheTrueOne) {
  Cluster cluster = ClusterOf({{}, {}, {}});
  cluster.devices[1].memory_bytes = kGiB / 1024;
  const auto small = PlanOf(cluster, Batch(8));
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_THAT(small->why, Contains(HasSubstr("n2 is left out: 1 MiB of its memory may be used")));
  PlanRequest two = Batch(8);
  two.data = 2;
  const auto asked = PlanOf(ClusterOf({{}, {}, {}}), two);
  ASSERT_TRUE(asked) << asked.error().message;
  EXPECT_THAT(asked->why, Contains(HasSubstr("is left out: parallel.data = 2 takes no more")));
}

TEST(MakePlan, TensorRanksShareTheProcessorOfANode) {
  PlanRequest request = Batch(8);
  request.runnable_only = true;
  request.tensor = 2;
  request.data = 2;
  const auto made = MakePlan(ClusterOf({1, 1}), kDims, {}, {}, request);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(NotRunnable(made->plan), "");
  ASSERT_EQ(made->plan.ranks.size(), 4);
  EXPECT_EQ(made->plan.tensor, 2);
  for (const RankPlan& rank : made->plan.ranks) {
    const RankPlan& first = made->plan.ranks[static_cast<std::size_t>(rank.rank / 2 * 2)];
    EXPECT_EQ(rank.device.node, first.device.node);
    EXPECT_EQ(rank.first_sample, first.first_sample) << "the same samples";
  }
  EXPECT_NE(made->plan.ranks[0].device.node, made->plan.ranks[2].device.node);
  request.compression = CompressionRequest{.always = true, .density = 0.1};
  request.tensor.reset();
  EXPECT_EQ(MakePlan(ClusterOf({1, 1}), kDims, {}, {}, request)->plan.tensor, 1);
}

TEST(MakePlan, ARunShardsItsStateWhereMemoryAsksForIt) {
  const ModelDims dims{2, 2, 512, 32, 4096, true};
  PlanRequest request = Batch(8);
  request.runnable_only = true;
  request.micro_batch = 1;
  request.pipeline = 1;
  request.tensor = 1;
  const Cluster ample = ClusterOf({1, 1});
  const auto whole = MakePlan(ample, dims, {}, {}, request);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->plan.shard, 0) << "needs no shards";
  const double enough = static_cast<double>(whole->plan.memory_bytes) / kMemoryShare;
  const Cluster narrow = ClusterOf({1, 1}, static_cast<std::int64_t>(0.95 * enough));
  const auto sharded = MakePlan(narrow, dims, {}, {}, request);
  ASSERT_TRUE(sharded) << sharded.error().message;
  EXPECT_GT(sharded->plan.shard, 0);
  EXPECT_THAT(sharded->plan.why, Contains(HasSubstr("nothing fits without")));
  // Who wants no shards is told that nothing fits.
  request.shard = 0;
  EXPECT_FALSE(MakePlan(narrow, dims, {}, {}, request));
}

TEST(Planner, ALargerClusterThanRanksCanTrainTogetherIsUsedInPart) {
  const auto cluster = ClusterFromJson(
      R"({"format_version": 1, "name": "large", "switches": [{"name": "core"}],
          "groups": [{"prefix": "a", "nodes": 5, "switch": "core", "nic_gbit_per_s": 400,
            "latency_us": 1, "device": {"kind": "cpu", "model": "x", "count": 1000,
            "memory_gib": 64, "tflops": 1, "copy_gb_per_s": 100}}]})");
  ASSERT_TRUE(cluster) << cluster.error().message;
  PlanRequest request = Batch(16384);
  request.runnable_only = true;
  request.even_shares = true;
  request.micro_batch = 1;
  request.pipeline = 1;
  request.tensor = 1;
  request.recompute = Recompute::kNone;
  const auto made = MakePlan(*cluster, kDims, {}, {}, request);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->plan.ranks.size(), kMostRanks);
  EXPECT_EQ(NotRunnable(made->plan), "");
  EXPECT_THAT(made->plan.why, Contains(HasSubstr("at most 4096 ranks can train together")));
  // Who asks for more is told so by name.
  request.data = kMostRanks + 1;
  EXPECT_EQ(MakePlan(*cluster, kDims, {}, {}, request)->plan.ranks.size(), kMostRanks + 1);
}

}  // namespace
}  // namespace adaptive_train::planner_test
