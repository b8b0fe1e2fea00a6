// Ranks that are slower than planned: found by evidence, never by noise; given other shares, judged,
// taken back or replaced.
#include "launcher/run/rebalancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace adaptive_train::rebalancer_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// Replicas in micro-batches of 2, rank r on node n(r + 1).
Plan ReplicasPlan(const Shares& shares, int stages = 1) {
  Plan plan;
  plan.data = static_cast<int>(shares.size());
  for (int stage = 0; stage < stages; ++stage) {
    plan.stages.emplace_back().chunks = {{2 * stage, 2 * stage + 2}};
    plan.global_batch = 0;
    for (int replica = 0; replica < plan.data; ++replica) {
      RankPlan rank;
      rank.rank = static_cast<int>(plan.ranks.size());
      rank.stage = stage;
      rank.replica = replica;
      rank.device.node = "n" + std::to_string(rank.rank + 1);
      rank.first_sample = plan.global_batch;
      rank.samples = shares[static_cast<std::size_t>(replica)];
      rank.micro_batch = 2;
      plan.global_batch += rank.samples;
      plan.ranks.push_back(rank);
    }
  }
  return plan;
}

/// 0.1 s a sequence.
std::vector<PlaceSeconds> Planned(const Plan& plan) {
  return std::vector<PlaceSeconds>(plan.ranks.size(), PlaceSeconds{{0, 0.1}, 0});
}

/// Ranks whose times are as planned, times a factor, times noise; a step takes as long as the
/// slowest. They take up shares one step after they were asked to.
class SimulatedRanks {
 public:
  explicit SimulatedRanks(const Plan& plan, double sigma = 0)
      : plan_(plan), sigma_(sigma), shares(ReplicaSharesOf(plan)), factor(plan.ranks.size(), 1.0) {}

  Rebalancer::Answer Step(Rebalancer& rebalancer) {
    std::vector<RankMetrics> metrics(plan_.ranks.size());
    double longest = 0;
    for (std::size_t r = 0; r < metrics.size(); ++r) {
      metrics[r].samples = shares[static_cast<std::size_t>(plan_.ranks[r].replica)];
      metrics[r].compute_s =
          0.1 * static_cast<double>(metrics[r].samples) * factor[r] * (sigma_ == 0 ? 1 : Noise());
      longest = std::max(longest, metrics[r].compute_s);
    }
    const Rebalancer::Answer answer = rebalancer.AfterStep(metrics, longest + rest, moving_s);
    if (answer.ask && hears) shares = *answer.ask;
    return answer;
  }

  /// The first answer with a line, within 200 steps.
  Rebalancer::Answer Line(Rebalancer& rebalancer) {
    for (int step = 0; step < 200; ++step) {
      const Rebalancer::Answer answer = Step(rebalancer);
      if (!answer.line.empty()) return answer;
    }
    return {};
  }

  void ExpectSilence(Rebalancer& rebalancer) {
    for (int step = 0; step < 200; ++step) ASSERT_EQ(Step(rebalancer).line, "") << "step " << step;
  }

 private:
  double Noise() { return std::exp(std::normal_distribution<double>(0, sigma_)(engine_)); }

  const Plan plan_;
  const double sigma_;
  std::mt19937_64 engine_{1};

 public:
  Shares shares;
  std::vector<double> factor;  // index = rank
  double rest = 0;             // of a step, beside computing
  double moving_s = 0;
  bool hears = true;
};

/// One window of steps of half a second.
std::optional<OffPlace> Seen(SlowPlaces& watch, const std::vector<double>& computed_s,
                             const std::vector<double>& expected_s, std::vector<bool> may_be_fast) {
  for (std::size_t step = 1;; ++step) {
    const auto window = watch.Add(computed_s, expected_s, 0.5, may_be_fast);
    if (!window) continue;
    EXPECT_EQ(step, SlowPlaces::kWindow);
    EXPECT_EQ(window->steps, step);
    return window->off;
  }
}

TEST(SlowPlaces, NoiseAloneIsNoEvidence) {
  for (const std::size_t replicas : {2u, 3u, 8u}) {
    for (const double sigma : {0.05, 0.15, 0.3}) {
      std::mt19937_64 engine(7);
      std::normal_distribution<double> noise(0, sigma);
      std::uniform_real_distribution<double> uniform(0, 1);
      SlowPlaces watch(replicas, static_cast<int>(replicas));
      const std::vector<double> expected(replicas, 0.4);
      const std::vector<bool> may_be_fast(replicas, true);
      constexpr int kWindows = 4000;
      int windows = 0, alarms = 0;
      while (windows < kWindows) {
        std::vector<double> computed;
        for (std::size_t r = 0; r < replicas; ++r)
          computed.push_back(0.45 * std::exp(noise(engine)) * (uniform(engine) < 0.05 ? 5 : 1));
        if (const auto window = watch.Add(computed, expected, 0.5, may_be_fast)) {
          ++windows;
          alarms += window->off ? 1 : 0;
        }
      }
      EXPECT_LE(alarms, kWindows / 1000) << replicas << " replicas, sigma " << sigma;
    }
  }
}

TEST(SlowPlaces, FindsWhoIsSlowAndNoticesThatItIsFastAgain) {
  SlowPlaces watch(3, 3);
  const std::vector<double> expected = {0.4, 0.4, 0.4};
  const std::vector<bool> nobody = {false, false, false}, second = {false, true, false};
  EXPECT_FALSE(Seen(watch, {0.6, 0.6, 0.6}, expected, nobody)) << "all were expected to be faster";
  EXPECT_FALSE(Seen(watch, {0.4, 0.4, 0.47}, expected, nobody)) << "within 20 %";
  EXPECT_FALSE(Seen(watch, {0.4, 0.1, 0.4}, expected, nobody)) << "fast is no fault";
  EXPECT_FALSE(Seen(watch, {0.3, 0.4, 0.3}, expected, nobody)) << "as planned, others are faster";
  const auto slow = Seen(watch, {0.4, 0.8, 0.4}, expected, nobody);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->place, 1u);
  EXPECT_DOUBLE_EQ(slow->times, 2);
  EXPECT_FALSE(Seen(watch, {0.4, 0.8, 0.4}, {0.4, 0.8, 0.4}, second)) << "it is known";
  EXPECT_FALSE(Seen(watch, {0.7, 0.8, 0.7}, {0.4, 0.8, 0.4}, second)) << "the others are slower";
  const auto fast = Seen(watch, {0.4, 0.4, 0.4}, {0.4, 0.8, 0.4}, second);
  ASSERT_TRUE(fast);
  EXPECT_DOUBLE_EQ(fast->times, 0.5);
}

/// Layers of one stage may all be timed wrongly: that is no fault of its ranks.
TEST(SlowPlaces, ComparesWithinAStage) {
  SlowPlaces watch(4, 2);
  const std::vector<double> expected(4, 0.4);
  EXPECT_FALSE(Seen(watch, {0.4, 0.4, 0.7, 0.7}, expected, std::vector<bool>(4)));
  const auto slow = Seen(watch, {0.4, 0.4, 0.7, 1.4}, expected, std::vector<bool>(4));
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->place, 3u);
  EXPECT_DOUBLE_EQ(slow->times, 2);
}

TEST(SlowPlaces, AFewVeryLongStepsAreNoEvidenceNorIsHalfAWindow) {
  for (const std::size_t slow_steps : {1u, 2u, 11u, 17u}) {
    SlowPlaces watch(2, 2);
    for (std::size_t step = 0; step < SlowPlaces::kWindow; ++step) {
      const double computed[] = {0.4, step < slow_steps ? 40.0 : 0.4}, expected[] = {0.4, 0.4};
      const auto window = watch.Add(computed, expected, 0.5, {false, false});
      EXPECT_FALSE(window && window->off) << slow_steps;
    }
  }
}

/// Some milliseconds of one thread before the other are no evidence.
TEST(SlowPlaces, ShortStepsCountTogether) {
  SlowPlaces watch(2, 2);
  std::size_t steps = 0, windows = 0;
  while (windows < 3) {
    // Each replica is held up for 50 steps in turn.
    const bool first = steps / 50 % 2 == 0;
    const double computed[] = {first ? 0.004 : 0.001, first ? 0.001 : 0.004};
    const double expected[] = {0.001, 0.001};
    const auto window = watch.Add(computed, expected, 0.005, {false, false});
    ++steps;
    if (!window) continue;
    ++windows;
    EXPECT_GE(window->steps, SlowPlaces::kWindow * SlowPlaces::kLeastSeconds / 0.005 - 1);
    EXPECT_FALSE(window->off);
  }
}

TEST(ReplicaTimes, ShareOutByWhatIsKnownInWholeUnits) {
  const Plan plan = ReplicasPlan({4, 4, 4});
  ReplicaTimes times(plan, Planned(plan));
  EXPECT_THAT(times.Best({}, 12), ElementsAre(4, 4, 4));
  times.Believe(1, 2);
  EXPECT_THAT(times.Best({}, 10), ElementsAre(4, 2, 4));
  EXPECT_DOUBLE_EQ(times.Longest({4, 2, 4}), 0.4);
  EXPECT_DOUBLE_EQ(times.Of(1, 2), 0.4);
  times.Believe(1, 1e9);
  EXPECT_THAT(times.Best({}, 9), ElementsAre(4, 1, 4)) << "each replica has a share";
  times.Believe(1, 1e-12);
  EXPECT_DOUBLE_EQ(times.Slower(1), 1) << "never less than planned";

  const Plan staged = ReplicasPlan({12, 12}, 2);
  ReplicaTimes stages(staged, Planned(staged));
  EXPECT_DOUBLE_EQ(stages.Longest({12, 12}), 0.2 + 6 * 0.2) << "a trip, and the others' periods";
  stages.Believe(3, 2);  // the second replica's last stage
  const Shares best = stages.Best(ShareRuleOf(staged), 24);
  EXPECT_THAT(best, ElementsAre(16, 8));
  EXPECT_TRUE(WithShares(staged, best));
}

/// What shares do not change counts as well: the update, and what each micro-batch takes at least.
TEST(ReplicaTimes, UpdatesAndMicroBatchesCount) {
  const Plan plan = ReplicasPlan({4, 4});
  const ReplicaTimes times(plan, std::vector<PlaceSeconds>(2, {{0.05, 0.1}, 0.3}));
  EXPECT_DOUBLE_EQ(times.Of(0, 3), 2 * 0.05 + 3 * 0.1 + 0.3);
  EXPECT_DOUBLE_EQ(times.Longest({3, 5}), 3 * 0.05 + 5 * 0.1 + 0.3);
}

TEST(Rebalancer, ASlowNodeGetsASmallerShareAndWhatItBroughtIsTold) {
  const Plan plan = ReplicasPlan({4, 4, 4, 4});
  Rebalancer rebalancer(plan, Planned(plan), {});
  SimulatedRanks ranks(plan, 0.02);
  ranks.ExpectSilence(rebalancer);
  ranks.factor[3] = 1.8;
  auto answer = ranks.Line(rebalancer);
  ASSERT_TRUE(answer.ask);
  const Shares less = *answer.ask;
  EXPECT_EQ(less[3], 2);
  EXPECT_TRUE(WithShares(plan, less));
  EXPECT_THAT(answer.line, AllOf(StartsWith("rank 3 on n4 computes 1."),
                                 HasSubstr(" times as long as planned (20 steps, +-"),
                                 EndsWith("): its share goes from 4 to 2 sequences")));
  ASSERT_TRUE(answer.slow);
  EXPECT_EQ(answer.slow->rank, 3);
  EXPECT_EQ(answer.slow->node, "n4");
  EXPECT_THAT(answer.line, StartsWith(answer.slow->how + ": "));
  answer = ranks.Step(rebalancer);
  ASSERT_TRUE(answer.taken);
  EXPECT_EQ(*answer.taken, less);
  answer = ranks.Line(rebalancer);
  EXPECT_THAT(answer.line,
              AllOf(StartsWith("steps are "),
                    HasSubstr(" % faster since the share of rank 3 on n4 went from 4 to 2 "
                              "sequences: 0.5")));
  EXPECT_FALSE(answer.ask || answer.replace);
  ranks.ExpectSilence(rebalancer);

  ranks.factor[3] = 1;  // whatever it was is over
  answer = ranks.Line(rebalancer);
  ASSERT_TRUE(answer.ask);
  EXPECT_THAT(*answer.ask, ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(answer.line, HasSubstr("times as long as before"));
  EXPECT_FALSE(answer.slow);
  EXPECT_THAT(answer.line, HasSubstr("its share goes from 2 to 4 sequences"));
  EXPECT_THAT(ranks.Line(rebalancer).line,
              HasSubstr("faster since the share of rank 3 on n4 went from 2 to 4"));
  ranks.ExpectSilence(rebalancer);
}

TEST(Rebalancer, AReplicaIsSlowIfOneOfItsStagesIs) {
  const Plan plan = ReplicasPlan({12, 12}, 2);
  Rebalancer rebalancer(plan, Planned(plan), {});
  SimulatedRanks ranks(plan);
  ranks.factor[3] = 2;
  const auto answer = ranks.Line(rebalancer);
  EXPECT_THAT(answer.line, StartsWith("rank 3 on n4 computes 2.00 times as long as planned"));
  ASSERT_TRUE(answer.ask);
  EXPECT_THAT(*answer.ask, ElementsAre(16, 8));
  EXPECT_TRUE(WithShares(plan, *answer.ask));
}

TEST(Rebalancer, SharesThatDoNotHelpAreTakenBackAndStay) {
  const Plan plan = ReplicasPlan({4, 4, 4, 4});
  Rebalancer rebalancer(plan, Planned(plan), {});
  SimulatedRanks ranks(plan);
  ranks.factor[1] = 1.8;
  ASSERT_TRUE(ranks.Line(rebalancer).ask);
  ranks.rest = 1;  // what steps wait for is something else
  auto answer = ranks.Line(rebalancer);
  ASSERT_TRUE(answer.ask);
  EXPECT_THAT(*answer.ask, ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(answer.line,
              StartsWith("steps are no faster since the share of rank 1 on n2 went from 4 to 2"));
  EXPECT_THAT(answer.line, EndsWith("; the shares are taken back"));
  EXPECT_TRUE(ranks.Step(rebalancer).taken);
  ranks.ExpectSilence(rebalancer);
  ranks.factor[2] = 3;
  answer = ranks.Line(rebalancer);
  EXPECT_THAT(answer.line, EndsWith("another share has not made steps faster before"));
  EXPECT_TRUE(answer.slow);
  EXPECT_FALSE(answer.ask);
}

TEST(Rebalancer, ANodeThatBecomesSlowerStillGetsLessNotMore) {
  const Plan plan = ReplicasPlan({8, 8});
  Rebalancer rebalancer(plan, Planned(plan), {});
  SimulatedRanks ranks(plan);
  ranks.factor[1] = 1.7;
  ASSERT_THAT(*ranks.Line(rebalancer).ask, ElementsAre(10, 6));
  ranks.factor[1] = 3;
  auto answer = ranks.Line(rebalancer);
  EXPECT_THAT(answer.line, AllOf(StartsWith("steps are no faster since the share of rank 1 on n2"),
                                 EndsWith(", but it has become slower still")));
  EXPECT_FALSE(answer.ask);
  answer = ranks.Line(rebalancer);
  ASSERT_TRUE(answer.ask) << answer.line;
  EXPECT_THAT(*answer.ask, ElementsAre(12, 4));
  EXPECT_THAT(answer.line, StartsWith("rank 1 on n2 computes 3.00 times as long as planned"));
  EXPECT_THAT(ranks.Line(rebalancer).line,
              HasSubstr("faster since the share of rank 1 on n2 went from 6 to 4 sequences"));
}

TEST(Rebalancer, AReplicaThatIsSlowAgainAndAgainIsLeftAlone) {
  const Plan plan = ReplicasPlan({8, 8});
  Rebalancer rebalancer(plan, Planned(plan), {});
  SimulatedRanks ranks(plan);
  for (int time = 0; time < Rebalancer::kMostChanges; ++time) {
    ranks.factor[1] = 3;
    ASSERT_TRUE(ranks.Line(rebalancer).ask);
    EXPECT_THAT(ranks.Line(rebalancer).line, HasSubstr("faster"));
    ranks.factor[1] = 1;
    ASSERT_TRUE(ranks.Line(rebalancer).ask);
    EXPECT_THAT(ranks.Line(rebalancer).line, HasSubstr("faster"));
  }
  ranks.factor[1] = 3;
  const auto answer = ranks.Line(rebalancer);
  EXPECT_THAT(answer.line, EndsWith("its share has changed 3 times, which is enough"));
  EXPECT_FALSE(answer.ask);
  ranks.ExpectSilence(rebalancer);
}

TEST(Rebalancer, RanksThatWereLaunchedAgainAreAskedAgain) {
  const Plan plan = ReplicasPlan({4, 4});
  Rebalancer rebalancer(plan, Planned(plan), {});
  SimulatedRanks ranks(plan);
  ranks.factor[1] = 3;
  ranks.hears = false;  // a rank fails before it knows
  const auto asked = ranks.Line(rebalancer).ask;
  ASSERT_TRUE(asked);
  for (int step = 0; step < 50; ++step) EXPECT_FALSE(ranks.Step(rebalancer).ask);
  rebalancer.BeginLaunch();
  ranks.hears = true;
  EXPECT_EQ(ranks.Step(rebalancer).ask, asked);
  EXPECT_EQ(ranks.Step(rebalancer).taken, asked);
  EXPECT_THAT(ranks.Line(rebalancer).line, HasSubstr("faster"));
  rebalancer.BeginLaunch();
  ranks.ExpectSilence(rebalancer);
}

TEST(Rebalancer, ASpareTakesThePlaceWhereSharesDoNotHelp) {
  const Plan plan = ReplicasPlan({4, 4, 4, 4});
  Rebalancer rebalancer(plan, Planned(plan), {.replaceable = {"n1", "n2"}});
  SimulatedRanks ranks(plan);
  ranks.factor[1] = 1.8;
  ASSERT_TRUE(ranks.Line(rebalancer).ask);
  ranks.rest = 1;
  const auto answer = ranks.Line(rebalancer);
  EXPECT_FALSE(answer.ask);
  EXPECT_EQ(answer.replace, "n2");
  EXPECT_THAT(answer.line, EndsWith("; a spare takes the place of n2"));

  for (const bool helps : {true, false}) {
    Rebalancer next(plan, Planned(plan), {.replaceable = {"n2"}, .deed = rebalancer.Replacing()});
    SimulatedRanks other(plan);
    if (!helps) other.rest = 2;
    const auto verdict = other.Line(next);
    EXPECT_THAT(verdict.line, HasSubstr(helps ? "% faster since a spare took the place of n2: 0.4 s"
                                              : "no faster since a spare took the place of n2"));
    EXPECT_EQ(verdict.in_vain, !helps);
    other.factor[1] = 30;
    other.Line(next);
    EXPECT_EQ(other.Line(next).replace.has_value(), false) << "its share helps, or spares do not";
  }
}

TEST(Rebalancer, WhereSharesCannotChangeASpareIsTheOnlyMeans) {
  const Plan plan = ReplicasPlan({4, 4});
  for (const bool spare : {false, true}) {
    for (const double moving_s : {0.0, 10.0}) {
      Rebalancer::Settings settings{.fixed = "shares stay even (parallel.shares)"};
      if (spare) settings.replaceable = {"n1"};
      Rebalancer rebalancer(plan, Planned(plan), settings);
      SimulatedRanks ranks(plan);
      ranks.moving_s = moving_s;
      ranks.factor[0] = 3;
      const auto answer = ranks.Line(rebalancer);
      EXPECT_THAT(answer.line, HasSubstr("rank 0 on n1 computes 3.00 times as long as planned (20 "
                                         "steps, +-0.0 %): shares stay even (parallel.shares)"));
      EXPECT_FALSE(answer.ask);
      EXPECT_EQ(answer.replace.has_value(), spare && moving_s == 0) << answer.line;
      EXPECT_EQ(answer.line.ends_with("too few steps are left for a move to a spare"),
                spare && moving_s > 0);
    }
  }
}

}  // namespace
}  // namespace adaptive_train::rebalancer_test
