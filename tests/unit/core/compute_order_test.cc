// The published schedules: they can run, hold what they should, and have the bubbles they are known
// for.
#include "core/schedule/compute_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/check.h"
#include "core/schedule/passes.h"
#include "core/schedule/play.h"
#include "tests/unit/core/schedule_shapes.h"

namespace adaptive_train::compute_order_test {
namespace {

using ::testing::HasSubstr;

constexpr double kTiny = 1e-9;

int VersionsOf(ScheduleKind kind) { return kind == ScheduleKind::kPipeDream2Bw ? 2 : 1; }

/// Even stages, halves of a backward as long as a forward, no transfers.
SchedulePlay PlayEven(const Schedule& schedule) {
  PlayCosts costs;
  costs.stages.assign(static_cast<std::size_t>(schedule.stages),
                      {.forward = 1, .backward_input = 1, .backward_weight = 1});
  costs.transfer_s.assign(costs.stages.size() - 1, 0);
  return PlaySchedule(schedule, costs);
}

TEST(ComputeOrderTest, EveryKindAndShapePassesTheCheck) {
  for (const NamedSchedule& named : AllSchedules()) {
    const int versions = VersionsOf(named.kind);
    const auto bare = CheckSchedule(named.schedule, {.weight_versions = versions});
    ASSERT_TRUE(bare) << named.name << ": " << bare.error().message << "\n" << bare.error().grid;
    const Schedule whole =
        WithPasses(named.schedule, {.gather = true, .reduce = true, .steps = named.shape.steps});
    const auto checked = CheckSchedule(whole, {.communication = true,
                                               .reduce = true,
                                               .gather = true,
                                               .step = true,
                                               .weight_versions = versions});
    ASSERT_TRUE(checked) << named.name << ": " << checked.error().message << "\n"
                         << checked.error().grid;
    EXPECT_EQ(checked->in_flight, bare->in_flight) << named.name;
  }
}

TEST(ComputeOrderTest, HoldsAsManyMicroBatchesAsItSays) {
  for (const NamedSchedule& named : AllSchedules()) {
    const ScheduleUse use =
        CheckSchedule(named.schedule, {.weight_versions = VersionsOf(named.kind)}).value();
    const int p = named.shape.ranks, m = named.shape.micro_batches;
    for (int stage = 0; stage < named.schedule.stages; ++stage) {
      const int held = use.in_flight[static_cast<std::size_t>(stage)];
      const int to_end = p - stage % p;
      switch (named.kind) {
        case ScheduleKind::kGPipe:
        case ScheduleKind::kBreadthFirst:
          EXPECT_EQ(held, m) << named.name;
          break;
        case ScheduleKind::kOneForwardOneBackward:
          EXPECT_EQ(held, std::min(m, to_end)) << named.name;
          break;
        case ScheduleKind::kZeroBubbleH1:
          EXPECT_EQ(held, std::min(m, p)) << named.name;
          break;
        case ScheduleKind::kPipeDream2Bw:
          EXPECT_EQ(held, std::min({to_end, m + 1, 3 * m})) << named.name;
          break;
        case ScheduleKind::kInterleaved:
          EXPECT_LE(held, m) << named.name;
      }
    }
  }
}

TEST(ComputeOrderTest, AnInterleavedRankHoldsWhatNarayananEtAlSay) {
  for (const NamedSchedule& named : AllSchedules()) {
    const auto [p, v, m, steps] = named.shape;
    if (named.kind != ScheduleKind::kInterleaved || m % p != 0 || v == 1) continue;
    const std::vector<double> one(static_cast<std::size_t>(named.schedule.stages), 1);
    const ScheduleUse use = CheckSchedule(named.schedule, {.activation_bytes = one}).value();
    for (int rank = 0; rank < p; ++rank)
      EXPECT_EQ(use.bytes[static_cast<std::size_t>(rank)],
                std::min(v * m, 2 * (p - 1 - rank) + (v - 1) * p + 1))
          << named.name;
  }
}

TEST(ComputeOrderTest, BubblesAreThoseThatAreKnown) {
  for (const NamedSchedule& named : AllSchedules()) {
    const double p = named.shape.ranks, v = named.shape.chunks, m = named.shape.micro_batches;
    const SchedulePlay play = PlayEven(named.schedule);
    const double idle = play.makespan_s - 3 * m * v * named.shape.steps;  // of any rank
    switch (named.kind) {
      case ScheduleKind::kGPipe:
      case ScheduleKind::kOneForwardOneBackward:
        EXPECT_NEAR(play.Bubble(), (p - 1) / (m + p - 1), kTiny) << named.name;
        break;
      case ScheduleKind::kInterleaved:
      case ScheduleKind::kBreadthFirst:
        if (m >= p) {
          EXPECT_NEAR(play.Bubble(), (p - 1) / (v * m + p - 1), kTiny) << named.name;
        }
        break;
      case ScheduleKind::kZeroBubbleH1:
        // A third of 1F1B's 3 (p - 1), where the pipeline fills at all.
        if (m >= p) {
          EXPECT_NEAR(idle, p - 1, kTiny) << named.name;
        }
        break;
      case ScheduleKind::kPipeDream2Bw:
        // Filled once for all steps.
        if (m >= p) {
          EXPECT_NEAR(idle, 3 * (p - 1), kTiny) << named.name;
        }
    }
  }
}

TEST(ComputeOrderTest, InterleavedIsNeverSlowerThanBreadthFirst) {
  for (const NamedSchedule& named : AllSchedules()) {
    if (named.kind != ScheduleKind::kInterleaved || named.shape.chunks == 1) continue;
    const double other =
        PlayEven(ComputeOrder(ScheduleKind::kBreadthFirst, named.shape).value()).makespan_s;
    EXPECT_LE(PlayEven(named.schedule).makespan_s, other + kTiny) << named.name;
  }
}

TEST(ComputeOrderTest, RefusesShapesThatAKindDoesNotHave) {
  const auto message = [](ScheduleKind kind, const ScheduleShape& shape) {
    return ComputeOrder(kind, shape).error().message;
  };
  EXPECT_THAT(message(ScheduleKind::kGPipe, {0, 1, 1}), HasSubstr("1 or more of each"));
  EXPECT_THAT(message(ScheduleKind::kGPipe, {2, 1, 0}), HasSubstr("1 or more of each"));
  EXPECT_THAT(message(ScheduleKind::kZeroBubbleH1, {2, 2, 4}), HasSubstr("zb-h1 with 2 chunks"));
  EXPECT_THAT(message(ScheduleKind::kOneForwardOneBackward, {2, 1, 4, 2}),
              HasSubstr("only pipedream-2bw"));
  EXPECT_THAT(message(ScheduleKind::kGPipe, {1 << 30, 1, 1}), HasSubstr("at most 4096 ranks"));
  EXPECT_THAT(message(ScheduleKind::kInterleaved, {64, 1 << 20, 1 << 20}), HasSubstr("at most"));
}

}  // namespace
}  // namespace adaptive_train::compute_order_test
