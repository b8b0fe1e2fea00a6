// Schedules for uneven stages, against 1F1B, known schedules and the bound.
#include "core/schedule/list_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

#include "core/schedule/check.h"
#include "core/schedule/compute_order.h"

namespace adaptive_train::list_schedule_test {
namespace {

using ::testing::HasSubstr;

constexpr double kTiny = 1e-9;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A random uneven pipeline: 2 to 8 ranks with 2 to 5 layers each, devices of speeds that differ by
/// up to 2.3, halves of a backward of .8 to 1.3 and .7 to 1.1 forwards, transfers of up to .3 of a
/// layer's forward on a device of middle speed; micro-batches from one to five times the ranks.
class RandomPipelines {
 public:
  UnevenPipeline Next() {
    UnevenPipeline pipeline;
    pipeline.ranks = 2 + Below(7);
    pipeline.micro_batches = pipeline.ranks * (1 + Below(4)) + Below(pipeline.ranks);
    for (int stage = 0; stage < pipeline.ranks; ++stage) {
      const int layers = 2 + Below(4);
      const double forward = layers * Between(0.6, 1.4);
      const double input = forward * Between(0.8, 1.3), weight = forward * Between(0.7, 1.1);
      pipeline.costs.stages.push_back(
          {.forward = forward, .backward_input = input, .backward_weight = weight});
      pipeline.activation_bytes.push_back(layers);
      if (stage > 0) pipeline.costs.transfer_s.push_back(Between(0, 0.3));
    }
    pipeline.rank_bytes.assign(static_cast<std::size_t>(pipeline.ranks), kInfinity);
    return pipeline;
  }
  int Below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }

 private:
  std::mt19937_64 random_{7};
};

Schedule OneForwardOneBackwardOf(const UnevenPipeline& pipeline) {
  return ComputeOrder(ScheduleKind::kOneForwardOneBackward,
                      {pipeline.ranks, 1, pipeline.micro_batches})
      .value();
}

/// Of its rank with the most work: all micro-batches, forward and backward.
double BusiestWork(const UnevenPipeline& pipeline) {
  double most = 0;
  for (const StageSeconds& its : pipeline.costs.stages)
    most = std::max(
        most, pipeline.micro_batches * (its.forward + its.backward_input + its.backward_weight));
  return most;
}

void ExpectSound(const UnevenPipeline& pipeline, const ListSchedule& list) {
  const auto checked = CheckSchedule(list.schedule, {.activation_bytes = pipeline.activation_bytes,
                                                     .rank_bytes = pipeline.rank_bytes});
  ASSERT_TRUE(checked) << checked.error().message << "\n" << checked.error().grid;
  EXPECT_NEAR(PlaySchedule(list.schedule, pipeline.costs).makespan_s, list.makespan_s, kTiny);
  EXPECT_GE(list.makespan_s, list.bound_s * (1 - kTiny));
}

struct Distribution {
  explicit Distribution(std::vector<double> values) : sorted(std::move(values)) {
    std::sort(sorted.begin(), sorted.end());
  }
  double At(double share) const {
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  void Print(const char* name) const {
    std::printf("%s: least %.3f, median %.3f, 90 %% %.3f, most %.3f\n", name, At(0), At(0.5),
                At(0.9), At(1));
  }
  std::vector<double> sorted;
};

/// The list schedule of 100 random pipelines beside 1F1B.
struct Comparison {
  std::vector<double> shares;  // of 1F1B's idle time of the busiest rank
  std::vector<double> gaps;
  double list_idle = 0, other_idle = 0;  // sums over the cases, each in units of its 1F1B step
  int above = 0, above_by_bound = 0;     // .45; and no schedule can be below

  /// `own_limits`: each rank holds what 1F1B holds there, not what its fullest rank holds.
  explicit Comparison(bool own_limits) {
    RandomPipelines pipelines;
    for (int draw = 0; draw < 100; ++draw) {
      UnevenPipeline pipeline = pipelines.Next();
      const Schedule other = OneForwardOneBackwardOf(pipeline);
      pipeline.rank_bytes =
          CheckSchedule(other, {.activation_bytes = pipeline.activation_bytes})->bytes;
      if (!own_limits)
        pipeline.rank_bytes.assign(
            pipeline.rank_bytes.size(),
            *std::max_element(pipeline.rank_bytes.begin(), pipeline.rank_bytes.end()));
      const ListSchedule list = MakeListSchedule(pipeline).value();
      ExpectSound(pipeline, list);
      Add(pipeline, list, PlaySchedule(other, pipeline.costs).makespan_s);
    }
  }

  void Add(const UnevenPipeline& pipeline, const ListSchedule& list, double other_s) {
    const double work = BusiestWork(pipeline);
    const double idle = list.makespan_s - work, other = other_s - work;
    const bool none = other < kTiny * other_s;
    shares.push_back(none ? 0 : idle / other);
    gaps.push_back(list.Gap());
    list_idle += idle / other_s;
    other_idle += other / other_s;
    if (none || idle <= 0.45 * other) return;
    ++above;
    if (list.bound_s - work > 0.45 * other) ++above_by_bound;
  }

  void Print(const char* title) const {
    std::printf("%s\n", title);
    Distribution(shares).Print("  share of 1F1B's idle time of the busiest rank");
    std::printf("  together %.3f; above .45: %d of %zu, of which %d by the bound\n",
                list_idle / other_idle, above, shares.size(), above_by_bound);
    Distribution(gaps).Print("  gap to the bound");
  }
};

TEST(ListScheduleTest, UnevenStagesAreIdleForAThirdOfWhat1F1BIsAtTheSamePeakMemory) {
  const Comparison comparison(false);
  comparison.Print("every rank may hold what 1F1B's fullest rank holds");
  EXPECT_LE(comparison.list_idle / comparison.other_idle, 0.45);
  EXPECT_LE(Distribution(comparison.shares).At(0.5), 0.45);
  EXPECT_LE(comparison.above, 10);
  EXPECT_LE(Distribution(comparison.gaps).At(1), 0.05);
}

TEST(ListScheduleTest, WithEachRanksOwnLimitOf1F1BIdleTimeIsAtMostThree5ths) {
  const Comparison comparison(true);
  comparison.Print("every rank may hold what 1F1B holds there");
  EXPECT_LE(comparison.list_idle / comparison.other_idle, 0.6);
  EXPECT_LE(Distribution(comparison.gaps).At(0.9), 0.05);
}

/// Even stages; as many micro-batches held as ranks.
UnevenPipeline EvenPipeline(int ranks, int chunks, int micro_batches, int held) {
  UnevenPipeline pipeline;
  pipeline.ranks = ranks;
  pipeline.micro_batches = micro_batches;
  pipeline.costs.stages.assign(static_cast<std::size_t>(ranks * chunks),
                               {.forward = 1, .backward_input = 1, .backward_weight = 1});
  pipeline.costs.transfer_s.assign(pipeline.costs.stages.size() - 1, 0);
  pipeline.activation_bytes.assign(pipeline.costs.stages.size(), 1);
  pipeline.rank_bytes.assign(static_cast<std::size_t>(ranks), held);
  return pipeline;
}

TEST(ListScheduleTest, IsNoSlowerThanZeroBubbleOnEvenStages) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      const UnevenPipeline pipeline =
          EvenPipeline(ranks, 1, micro_batches, std::min(ranks, micro_batches));
      const ListSchedule list = MakeListSchedule(pipeline).value();
      ExpectSound(pipeline, list);
      const Schedule known =
          ComputeOrder(ScheduleKind::kZeroBubbleH1, {ranks, 1, micro_batches}).value();
      EXPECT_LE(list.makespan_s, PlaySchedule(known, pipeline.costs).makespan_s + kTiny)
          << ranks << " ranks, " << micro_batches << " micro-batches";
    }
  }
}

TEST(ListScheduleTest, WithSeveralChunksItIsNoSlowerThanInterleavedAtItsPeakMemory) {
  RandomPipelines random;
  std::vector<double> shares, gaps;
  for (int draw = 0; draw < 50; ++draw) {
    const int ranks = 2 + random.Below(5), chunks = 2 + random.Below(2);
    UnevenPipeline pipeline =
        EvenPipeline(ranks, chunks, ranks * (1 + random.Below(3)) + random.Below(ranks), 0);
    for (StageSeconds& its : pipeline.costs.stages)
      its = {.forward = random.Between(0.7, 1.4),
             .backward_input = random.Between(0.7, 1.4),
             .backward_weight = random.Between(0.7, 1.4)};
    const Schedule other =
        ComputeOrder(ScheduleKind::kInterleaved, {ranks, chunks, pipeline.micro_batches}).value();
    const auto held = CheckSchedule(other, {.activation_bytes = pipeline.activation_bytes})->bytes;
    pipeline.rank_bytes.assign(held.size(), *std::max_element(held.begin(), held.end()));
    const ListSchedule list = MakeListSchedule(pipeline).value();
    ExpectSound(pipeline, list);
    shares.push_back(list.makespan_s / PlaySchedule(other, pipeline.costs).makespan_s);
    gaps.push_back(list.Gap());
  }
  Distribution(shares).Print("share of interleaved 1F1B's step");
  Distribution(gaps).Print("gap to the bound");
  EXPECT_LE(Distribution(shares).At(1), 1);
  EXPECT_LE(Distribution(gaps).At(0.9), 0.1);
}

TEST(ListScheduleTest, EveryShapeAndLimitGivesASoundSchedule) {
  RandomPipelines random;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        UnevenPipeline pipeline = EvenPipeline(ranks, chunks, micro_batches, 0);
        for (StageSeconds& its : pipeline.costs.stages) {
          its.forward *= random.Between(0.5, 2);
          if (random.Below(8) == 0) its = {};  // a stage without layers
        }
        for (double& limit : pipeline.rank_bytes) limit = chunks + random.Below(2 * ranks);
        const auto list = MakeListSchedule(pipeline, 50);
        ASSERT_TRUE(list) << list.error().message;
        ExpectSound(pipeline, *list);
      }
    }
  }
}

TEST(ListScheduleTest, OneMicroBatchAtATimeIsStillASchedule) {
  const UnevenPipeline pipeline = EvenPipeline(3, 1, 2, 1);
  const ListSchedule list = MakeListSchedule(pipeline).value();
  ExpectSound(pipeline, list);
  // 0F0 1F0 2F0 2I0 1I0 0I0 0W0, and again.
  EXPECT_NEAR(list.makespan_s, 14, kTiny);
  EXPECT_NEAR(list.bound_s, 14, kTiny);
}

TEST(ListScheduleTest, TheBoundIsThatOfTheSlowestStage) {
  UnevenPipeline pipeline = EvenPipeline(3, 1, 10, 100);
  pipeline.costs.stages[1] = {.forward = 3, .backward_input = 3, .backward_weight = 3};
  pipeline.costs.transfer_s = {0.5, 0.25};
  // Its first input is there after 1.5, it computes for 90; what surrounds it hides.
  EXPECT_NEAR(ScheduleBound(pipeline), 91.5, kTiny);
}

/// All rows of a stage in which micro-batches ascend and each goes forward, then backward.
std::vector<std::vector<Action>> AllRows(int stage, int micro_batches) {
  constexpr ActionKind kKinds[] = {ActionKind::kForward, ActionKind::kBackwardInput,
                                   ActionKind::kBackwardWeight};
  std::vector<std::vector<Action>> rows;
  std::vector<Action> row;
  int done[3] = {0, 0, 0};
  const auto extend = [&](const auto& self) -> void {
    if (done[2] == micro_batches) rows.push_back(row);
    for (int kind = 0; kind < 3; ++kind) {
      if (done[kind] == (kind == 0 ? micro_batches : done[kind - 1])) continue;
      row.push_back({stage, kKinds[kind], done[kind]++});
      self(self);
      row.pop_back();
      --done[kind];
    }
  };
  extend(extend);
  return rows;
}

/// The least makespan of all orders within the limits.
double Optimum(const UnevenPipeline& pipeline) {
  std::vector<std::vector<std::vector<Action>>> rows;
  Schedule schedule{.stages = pipeline.ranks, .micro_batches = pipeline.micro_batches, .ranks = {}};
  for (int rank = 0; rank < pipeline.ranks; ++rank)
    rows.push_back(AllRows(rank, pipeline.micro_batches));
  schedule.ranks.resize(rows.size());
  double least = kInfinity;
  const auto choose = [&](const auto& self, std::size_t rank) -> void {
    if (rank < rows.size()) {
      for (const std::vector<Action>& row : rows[rank]) {
        schedule.ranks[rank] = row;
        self(self, rank + 1);
      }
    } else if (CheckSchedule(schedule, {.activation_bytes = pipeline.activation_bytes,
                                        .rank_bytes = pipeline.rank_bytes})) {
      least = std::min(least, PlaySchedule(schedule, pipeline.costs).makespan_s);
    }
  };
  choose(choose, 0);
  return least;
}

TEST(ListScheduleTest, NoOrderOfASmallPipelineIsBelowTheBoundAndTheListIsNearTheBest) {
  RandomPipelines random;
  std::vector<double> over;
  for (int draw = 0; draw < 60; ++draw) {
    const int ranks = 2 + draw % 2;
    UnevenPipeline pipeline = EvenPipeline(ranks, 1, 1 + random.Below(5 - ranks), 0);
    for (StageSeconds& its : pipeline.costs.stages)
      its = {.forward = random.Between(0, 2),
             .backward_input = random.Between(0, 2),
             .backward_weight = random.Between(0, 2)};
    for (double& transfer : pipeline.costs.transfer_s) transfer = random.Between(0, 1);
    for (double& limit : pipeline.rank_bytes) limit = 1 + random.Below(3);
    const double optimum = Optimum(pipeline);
    const ListSchedule list = MakeListSchedule(pipeline).value();
    EXPECT_LE(list.bound_s, optimum * (1 + kTiny)) << "draw " << draw;
    over.push_back(list.makespan_s / optimum - 1);
  }
  Distribution(over).Print("above the best of all orders");
  EXPECT_LE(Distribution(over).At(1), 0.05);
}

TEST(ListScheduleTest, TheSameProblemGivesTheSameSchedule) {
  RandomPipelines pipelines;
  const UnevenPipeline pipeline = pipelines.Next();
  EXPECT_EQ(MakeListSchedule(pipeline)->schedule, MakeListSchedule(pipeline)->schedule);
}

TEST(ListScheduleTest, RefusesWhatDoesNotFitTogether) {
  const auto message = [](const UnevenPipeline& pipeline) {
    return MakeListSchedule(pipeline).error().message;
  };
  EXPECT_THAT(message(UnevenPipeline{}), HasSubstr("0 stages on 1 ranks"));
  UnevenPipeline pipeline = EvenPipeline(2, 2, 4, 4);
  pipeline.rank_bytes[1] = 1;
  EXPECT_EQ(
      message(pipeline),
      "rank 1 may hold 1 bytes of activations; one micro-batch of each of its stages takes 2");
  pipeline = EvenPipeline(2, 1, 4, 4);
  pipeline.costs.stages[1].backward_input = std::nan("");
  EXPECT_THAT(message(pipeline), HasSubstr("stage 1 has a time or size"));
  pipeline = EvenPipeline(2, 1, 4, 4);
  pipeline.costs.transfer_s.clear();
  EXPECT_THAT(message(pipeline), HasSubstr("with 0 transfers"));
  EXPECT_THAT(message(EvenPipeline(2, 1, 0, 4)), HasSubstr("0 micro-batches"));
}

}  // namespace
}  // namespace adaptive_train::list_schedule_test
