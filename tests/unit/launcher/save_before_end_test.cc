// When a run saves and ends before its job's time does.
#include "launcher/run/save_before_end.h"

#include <gtest/gtest.h>

#include <optional>

namespace adaptive_train::save_before_end_test {
namespace {

using Act = SaveBeforeEnd::Act;

TEST(SaveBeforeEnd, IsByWhatStepsAndSavesTookAndHappensOnce) {
  SaveBeforeEnd save(std::nullopt);
  save.Step(2), save.Step(1);
  save.Saved(40);
  EXPECT_EQ(save.At(std::nullopt), Act::kNothing);
  EXPECT_EQ(save.At(3600), Act::kNothing);
  EXPECT_EQ(save.At(115), Act::kNothing);
  EXPECT_EQ(save.At(113), Act::kEnd);
  EXPECT_EQ(save.At(112), Act::kNothing);
}

TEST(SaveBeforeEnd, ARoundIsToBeEndedFirst) {
  SaveBeforeEnd save(std::nullopt);
  save.Step(9, 16), save.Step(1, 16);
  save.Saved(40);
  EXPECT_EQ(save.At(30 + 2 * (9 + 15 + 40) + 1), Act::kNothing);
  EXPECT_EQ(save.At(30 + 2 * (9 + 15 + 40)), Act::kEnd);
}

TEST(SaveBeforeEnd, AnEndThatIsMovedIsTheEnd) {
  SaveBeforeEnd save(std::nullopt);
  save.Step(1);
  save.Saved(1);
  EXPECT_EQ(save.At(40), Act::kNothing);
  EXPECT_EQ(save.At(600), Act::kNothing);
  EXPECT_EQ(save.At(33), Act::kEnd);
}

TEST(SaveBeforeEnd, WhereNothingWasSavedAtHalfTimeASaveIsMeasured) {
  SaveBeforeEnd save(std::nullopt);
  EXPECT_EQ(save.At(200), Act::kNothing);
  EXPECT_EQ(save.At(90), Act::kNothing);  // no step to save yet
  save.Step(1);
  EXPECT_EQ(save.At(90), Act::kMeasure);
  EXPECT_EQ(save.At(89), Act::kNothing);
  save.Saved(20);
  EXPECT_EQ(save.At(71), Act::kEnd);
}

TEST(SaveBeforeEnd, ASaveThatDoesNotFitIsNotBegun) {
  SaveBeforeEnd save(std::nullopt);
  save.Step(1);
  save.Saved(30), save.Saved(9);  // the last one counts: 8 s, and a step until that was told
  EXPECT_EQ(save.LimitsOf(11).too_long, "");
  EXPECT_EQ(save.LimitsOf(10).too_long, "");
  EXPECT_EQ(save.LimitsOf(9).too_long, "a save takes 8 s, and the job is killed in 9 s");
  EXPECT_EQ(save.LimitsOf(9).give_up_s, 3.5) << "one that is under way may fit";
  EXPECT_EQ(save.LimitsOf(9).end_s, 7);
}

TEST(SaveBeforeEnd, TheStepUnderWayMayTakeWhatASaveLeaves) {
  SaveBeforeEnd save(std::nullopt);
  save.Step(1);
  save.Saved(9);
  EXPECT_EQ(save.LimitsOf(30).end_s, 28);
  EXPECT_EQ(save.LimitsOf(30).give_up_s, 20);
}

TEST(SaveBeforeEnd, WhereNothingWasSavedItIsTriedWhileThereIsTime) {
  SaveBeforeEnd save(std::nullopt);
  EXPECT_EQ(save.LimitsOf(5).too_long, "");
  EXPECT_EQ(save.LimitsOf(5).give_up_s, 1.5);
  EXPECT_EQ(save.LimitsOf(5).end_s, 3);
  EXPECT_EQ(save.LimitsOf(2).too_long, "the job is killed in 2 s");
  EXPECT_EQ(save.LimitsOf(-1).too_long, "the job is killed in 0 s");
}

TEST(SaveBeforeEnd, ARoundEndsTwoStepsBeforeTheSaveMustBegin) {
  SaveBeforeEnd save(std::nullopt);
  save.Step(3, 100), save.Step(1, 100);
  save.Saved(9);
  EXPECT_EQ(save.LimitsOf(30).give_up_s, 20);
  EXPECT_EQ(save.LimitsOf(30).end_round_s, 14);
  EXPECT_EQ(save.LimitsOf(9).end_round_s, std::nullopt) << "none is begun";
  SaveBeforeEnd fast(std::nullopt);
  fast.Step(0.003, 100);
  const StopLimits limits = fast.LimitsOf(5);
  EXPECT_DOUBLE_EQ(*limits.give_up_s - *limits.end_round_s, 1) << "for the ranks to hear of it";
  save.Step(1);
  EXPECT_EQ(save.LimitsOf(30).end_round_s, std::nullopt) << "each step has a state to save";
}

TEST(SaveBeforeEnd, WhatIsAskedForIsDone) {
  SaveBeforeEnd never(0), early(500);
  EXPECT_EQ(never.At(1), Act::kNothing);
  EXPECT_EQ(early.At(501), Act::kNothing);
  EXPECT_EQ(early.At(500), Act::kEnd);
}

}  // namespace
}  // namespace adaptive_train::save_before_end_test
