// When a run saves and ends before its job's time does.
#include "launcher/run/save_before_end.h"

#include <gtest/gtest.h>

namespace adaptive_train {
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

TEST(SaveBeforeEnd, WhatIsAskedForIsDone) {
  SaveBeforeEnd never(0), early(500);
  EXPECT_EQ(never.At(1), Act::kNothing);
  EXPECT_EQ(early.At(501), Act::kNothing);
  EXPECT_EQ(early.At(500), Act::kEnd);
}

}  // namespace
}  // namespace adaptive_train
