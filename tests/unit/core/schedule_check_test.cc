// What the check of a schedule finds, and how it says so.
#include "core/schedule/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "core/schedule/dry_run.h"
#include "core/schedule/passes.h"
#include "tests/unit/core/schedule_shapes.h"

namespace adaptive_train::schedule_check_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using enum ActionKind;

ScheduleFault FaultOf(std::string_view csv, const ScheduleNeeds& needs = {}) {
  const auto checked = CheckSchedule(ScheduleFromCsv(csv).value(), needs);
  return checked ? ScheduleFault{"none", ""} : checked.error();
}

TEST(ScheduleCheck, MeasuresWhatIsHeld) {
  const Schedule schedule = ScheduleFromCsv("0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1B0,1F1,1B1\n").value();
  const ScheduleUse use = CheckSchedule(schedule, {.activation_bytes = {10, 7}}).value();
  EXPECT_EQ(use.in_flight, (std::vector<int>{2, 1}));
  EXPECT_EQ(use.bytes, (std::vector<double>{20, 7}));
}

TEST(ScheduleCheck, MarksThePlaceInTheGrid) {
  const ScheduleFault fault = FaultOf("0F0,0F1,0B0,0B1\n1F0,1B0,1B1,1F1\n");
  EXPECT_EQ(fault.message, "1B1 comes before its forward");
  EXPECT_EQ(fault.grid,
            "     time  0    1    2    3             4\n"
            "rank    0  0F0  0F1       0B0           0B1\n"
            "rank    1       1F0  1B0  1B1 <-- here  1F1\n");
}

TEST(ScheduleCheck, SaysWhoWaitsForWhom) {
  const ScheduleFault fault = FaultOf("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_EQ(fault.message,
            "ranks wait for each other: rank 0 in 0B0 for 1I0, rank 1 in 1F1 for 0F1");
  EXPECT_THAT(fault.grid, HasSubstr("0B0 <-- here"));
}

TEST(ScheduleCheck, ShowsTheSurroundingsOfALargeGrid) {
  Schedule schedule = ComputeOrder(ScheduleKind::kOneForwardOneBackward, {100, 1, 200}).value();
  schedule.ranks[50].erase(schedule.ranks[50].begin() + 100);
  const auto checked = CheckSchedule(schedule);
  ASSERT_FALSE(checked);
  EXPECT_EQ(std::count(checked.error().grid.begin(), checked.error().grid.end(), '\n'), 18);
  EXPECT_THAT(checked.error().grid, HasSubstr("<-- here"));
  EXPECT_LT(checked.error().grid.size(), 5000u);
}

TEST(ScheduleCheck, FindsActionsOutOfPlace) {
  const auto message = [](std::string_view csv, const ScheduleNeeds& needs = {}) {
    return FaultOf(csv, needs).message;
  };
  EXPECT_EQ(message("0F0,0B0\n0F0,1F0,1B0\n"), "0F0 stands at rank 1; the stage is rank 0's");
  EXPECT_EQ(message("0F0,0F0,0B0\n1F0,1B0\n"), "0F0 stands a second time");
  EXPECT_EQ(message("0F1,0F0,0B0,0B1\n"), "0F1 stands where micro-batch 0 is the next of its kind");
  EXPECT_EQ(message("0F0,0B0,0W0\n1F0,1B0\n"), "0W0 stands a second time");
  EXPECT_EQ(message("0F0,0I0,1W0\n1F0,1B0\n"), "1W0 stands at rank 0; the stage is rank 1's");
  EXPECT_EQ(message("0GATHER0,0F0,0B0\n1F0,1B0,1GATHER0\n"),
            "1F0 comes before its weights are gathered");
  EXPECT_EQ(message("0GATHER0,0F0,0F1,0GATHER0,0B0,0B1\n"), "0GATHER0 stands a second time");
  EXPECT_EQ(message("0F0,0I0\n1F0,1B0\n"), "rank 0 ends without 0W0");
  EXPECT_EQ(message("0F0,0B0\n1F0,1B0\n", {.communication = true}),
            "0B0 comes before the gradient of its output is received");
  EXPECT_EQ(message("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "rank 0 ends without 0SEND_F0");
  EXPECT_EQ(message("0F0,0B0\n1F0,1B0\n", {.reduce = true}), "rank 0 ends without 0REDUCE0");
  EXPECT_EQ(message("0F0,0B0\n1F0,1B0\n", {.step = true}), "rank 0 ends without 0STEP0");
  EXPECT_EQ(message("0F0,0B0\n1F0,1B0\n", {.gather = true}),
            "0F0 comes before its weights are gathered");
}

TEST(ScheduleCheck, ReceivesFollowTheOtherSidesSends) {
  const std::string rank1 =
      "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,1RECV_B0,1B0,1SEND_B0\n";
  const std::string head = "0F0,0SEND_F0,", rest = "2B0,2SEND_B0,0RECV_B0,0B0\n";
  EXPECT_EQ(FaultOf(head + "2RECV_F0,2F0,2SEND_F0,2RECV_B0," + rest + rank1).message, "none");
  EXPECT_EQ(FaultOf(head + "2RECV_F0,2RECV_B0,2F0,2SEND_F0," + rest + rank1).message, "none");
  EXPECT_EQ(FaultOf(head + "2RECV_B0,2RECV_F0,2F0,2SEND_F0," + rest + rank1).message,
            "2RECV_B0 waits for 3SEND_B0 while rank 1 sends 1SEND_F0 first");
}

TEST(ScheduleCheck, AnUpdateHasAllGradientsAndNoLaterOnes) {
  const auto message = [](std::string_view csv, const ScheduleNeeds& needs = {}) {
    return FaultOf(csv, needs).message;
  };
  EXPECT_EQ(message("0F0,0F1,0B0,0REDUCE1,0B1\n"),
            "0REDUCE1 stands where gradients of 1 micro-batches are there, not of 2");
  EXPECT_EQ(message("0F0,0F1,0B0,0B1,0REDUCE0,0REDUCE1\n"),
            "0REDUCE0 stands where gradients of 2 micro-batches are there, not of 1");
  EXPECT_EQ(message("0F0,0F1,0B0,0B1,0STEP1,0REDUCE1\n"), "0STEP1 comes before its reduce");
  EXPECT_EQ(message("0F0,0F1,0B0,0B1,0STEP1,0STEP1\n"), "0STEP1 stands a second time");
  EXPECT_EQ(message("0F0,0B0,0STEP0,0F1,0B1,0STEP1\n1F0,1B0,1F1,1B1,1STEP1\n"),
            "stage 1 steps after micro-batches 1, stage 0 after 0, 1");
}

TEST(ScheduleCheck, AForwardWithOneVersionOfTheWeightsWaitsForTheUpdate) {
  const std::string text = "0F0,0F1,0B0,0STEP0,0F2,0B1,0STEP1,0B2,0STEP2\n";
  EXPECT_EQ(FaultOf(text).message, "0F1 comes before the update that it needs: 0 of 1 are done");
  EXPECT_EQ(FaultOf(text, {.weight_versions = 2}).message, "none");
  EXPECT_EQ(
      FaultOf("0F0,0F1,0F2,0B0,0STEP0,0B1,0STEP1,0B2,0STEP2\n", {.weight_versions = 2}).message,
      "0F2 comes before the update that it needs: 0 of 2 are done");
}

TEST(ScheduleCheck, ActivationsHaveTheirLimit) {
  const ScheduleFault fault = FaultOf("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
                                      {.activation_bytes = {10, 10}, .rank_bytes = {15, 15}});
  EXPECT_EQ(fault.message, "with 0F1 rank 0 holds 20 bytes of activations, its limit is 15");
  EXPECT_THAT(fault.grid, HasSubstr("0F1 <-- here"));
  EXPECT_THAT(FaultOf("0F0,0B0\n", {.activation_bytes = {1, 2}}).message,
              StartsWith("activation bytes of 2 stages"));
  EXPECT_THAT(FaultOf("0F0,0B0\n", {.rank_bytes = {1, 2}}).message,
              StartsWith("limits of 2 ranks"));
}

TEST(ScheduleCheck, AnEmptyScheduleIsRefused) {
  EXPECT_FALSE(CheckSchedule({}));
  EXPECT_FALSE(CheckSchedule({.stages = 1, .micro_batches = 0, .ranks = {{}}}));
  const auto empty_row = CheckSchedule({.stages = 2, .micro_batches = 1, .ranks = {{}, {}}});
  ASSERT_FALSE(empty_row);
  EXPECT_EQ(empty_row.error().message, "rank 0 ends without 0F0");
}

TEST(ScheduleCheck, NumbersBeyondTheScheduleAreRefused) {
  Schedule schedule = ScheduleFromCsv("0F0,0B0\n1F0,1B0\n").value();
  schedule.stages = 1;
  EXPECT_FALSE(CheckSchedule(schedule));
  schedule.stages = 2;
  schedule.ranks[1][0].micro_batch = 5;
  EXPECT_FALSE(CheckSchedule(schedule));
  schedule.ranks[1][0].micro_batch = -1;
  const auto checked = CheckSchedule(schedule);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().grid,
            "     time  0              1\n"
            "rank    0  0F0            0B0\n"
            "rank    1  1F-1 <-- here  1B0\n");
}

/// Breaks one thing of a sound schedule.
class Mutation {
 public:
  explicit Mutation(std::uint64_t seed) : random_(seed) {}

  std::size_t Below(std::size_t end) { return random_() % end; }

  /// A place whose action `which` accepts; rank and index.
  template <class Which>
  std::pair<std::size_t, std::size_t> Pick(const Schedule& schedule, Which which) {
    std::vector<std::pair<std::size_t, std::size_t>> places;
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
      for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i)
        if (which(schedule.ranks[rank][i])) places.emplace_back(rank, i);
    return places.empty() ? std::pair{schedule.ranks.size(), std::size_t{0}}
                          : places[Below(places.size())];
  }

  /// Says what it did; empty where the schedule has nothing of the kind.
  std::string Apply(Schedule& schedule) {
    switch (Below(4)) {
      case 0:
        return Drop(schedule, "dropped", [](const Action&) { return true; });
      case 1:
        return Drop(schedule, "missing reduce",
                    [](const Action& action) { return action.kind == kReduce; });
      case 2:
        return SwapMicroBatches(schedule);
      default:
        return SwapSends(schedule);
    }
  }

 private:
  template <class Which>
  std::string Drop(Schedule& schedule, const std::string& what, Which which) {
    const auto [rank, i] = Pick(schedule, which);
    auto& row = schedule.ranks[rank];
    const std::string text = ToText(row[i]);
    row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
    return what + " " + text;
  }

  /// Of two actions of one kind and stage.
  std::string SwapMicroBatches(Schedule& schedule) {
    const auto [rank, i] = Pick(schedule, [](const Action&) { return true; });
    Action& one = schedule.ranks[rank][i];
    std::vector<Action*> others;
    for (Action& other : schedule.ranks[rank])
      if (other.kind == one.kind && other.stage == one.stage &&
          other.micro_batch != one.micro_batch)
        others.push_back(&other);
    if (others.empty()) return "";
    Action& other = *others[Below(others.size())];
    std::swap(one.micro_batch, other.micro_batch);
    return "swapped " + ToText(one) + " and " + ToText(other);
  }

  /// Of two sends from one rank to another one.
  std::string SwapSends(Schedule& schedule) {
    const auto to = [&](const Action& send) {
      return schedule.RankOf(send.stage + (send.kind == kSendForward ? 1 : -1));
    };
    const auto [rank, i] = Pick(schedule, [](const Action& action) { return IsSend(action.kind); });
    if (rank == schedule.ranks.size()) return "";
    Action& one = schedule.ranks[rank][i];
    std::vector<Action*> others;
    for (Action& other : schedule.ranks[rank])
      if (IsSend(other.kind) && other != one && to(other) == to(one)) others.push_back(&other);
    if (others.empty()) return "";
    Action& other = *others[Below(others.size())];
    std::swap(one, other);
    return "sends in another order: " + ToText(one) + " and " + ToText(other);
  }

  std::mt19937_64 random_;
};

TEST(ScheduleCheck, FindsEachOfAThousandMutations) {
  const std::vector<NamedSchedule> all = AllSchedules();
  std::map<std::string, int> found;
  int draws = 0;
  for (std::uint64_t seed = 0; draws < 1000; ++seed) {
    Mutation mutation(seed);
    const NamedSchedule& named = all[mutation.Below(all.size())];
    const ScheduleNeeds needs{.communication = true,
                              .reduce = true,
                              .gather = true,
                              .step = true,
                              .weight_versions = named.kind == ScheduleKind::kPipeDream2Bw ? 2 : 1};
    const Schedule sound =
        WithPasses(named.schedule, {.gather = true, .reduce = true, .steps = named.shape.steps});
    Schedule schedule = sound;
    const std::string what = mutation.Apply(schedule);
    if (what.empty()) continue;
    ++draws;
    ASSERT_NE(schedule, sound);
    const auto checked = CheckSchedule(schedule, needs);
    ASSERT_FALSE(checked) << named.name << ": " << what << " (seed " << seed << ")";
    EXPECT_EQ(checked.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(checked.error().grid, HasSubstr("<-- here"));
    ++found[what.substr(0, what.find(' '))];
  }
  for (const auto& [kind, count] : found) EXPECT_GT(count, 100) << kind;
  EXPECT_EQ(found.size(), 4u);
}

}  // namespace
}  // namespace adaptive_train::schedule_check_test
