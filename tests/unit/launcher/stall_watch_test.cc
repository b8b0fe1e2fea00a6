// When a run that makes no step is told, and told again.
#include "launcher/steps/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/steps/sum_round.h"

namespace adaptive_train::stall_watch_test {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

class StallWatchTest : public testing::Test {
 protected:
  /// Seconds after which it asks, up to `until`, each followed by its line.
  std::vector<int> Asked(int until) {
    std::vector<int> asked;
    for (int second = 0; second <= until; ++second) {
      now_ = begin_ + std::chrono::seconds(second);
      if (watch_.Asks(now_)) asked.push_back(second);
      if (const auto line = watch_.Line(ranks_, now_)) lines_.push_back(*line);
    }
    return asked;
  }

  StallWatch watch_;
  StallWatch::Time begin_{}, now_{};
  std::vector<RankRecord> ranks_{2};
  std::vector<std::string> lines_;
};

TEST_F(StallWatchTest, BeforeTheFirstStepItWaitsLonger) {
  watch_.Begin(begin_);
  EXPECT_THAT(Asked(300), ElementsAre(60, 122, 246));
  EXPECT_THAT(lines_.front(), HasSubstr("no step for 61 s (step 1): "));
}

TEST_F(StallWatchTest, AfterTenSecondsOrFiveUsualSteps) {
  watch_.Begin(begin_);
  watch_.Step(8, 0.2, begin_);
  EXPECT_THAT(Asked(50), ElementsAre(10, 22, 46));
  EXPECT_THAT(lines_.front(), HasSubstr("no step for 11 s (step 9, usually 0.2 s): "));
  for (int i = 0; i < 40; ++i) watch_.Step(9 + i, 30, begin_);
  EXPECT_EQ(watch_.Limit(), 150s);
}

TEST_F(StallWatchTest, OneStepThatTookLongIsNotUsual) {
  watch_.Begin(begin_);
  for (const double seconds : {1.0, 1.0, 900.0, 1.0, 1.0}) watch_.Step(1, seconds, begin_);
  EXPECT_EQ(watch_.Limit(), 10s);
}

TEST_F(StallWatchTest, TheLongestStepOfARoundIsUsual) {
  watch_.Begin(begin_, 40);
  for (int step = 1; step < 40; ++step) watch_.Step(step, 0.5, begin_);
  EXPECT_EQ(watch_.Limit(), 60s);
  watch_.Step(40, 35, begin_);
  for (int step = 41; step < 80; ++step) {
    EXPECT_EQ(watch_.Limit(), 70s) << step;
    watch_.Step(step, 0.5, begin_);
  }
}

TEST_F(StallWatchTest, ItSaysThatTheRunGoesOnIfItSaidThatItDoesNot) {
  watch_.Begin(begin_);
  EXPECT_FALSE(watch_.Step(1, 0.2, begin_));
  EXPECT_FALSE(watch_.Step(2, 0.2, begin_ + 5s));
  EXPECT_FALSE(watch_.Stalled(begin_ + 14s));
  begin_ += 5s;
  Asked(12);
  EXPECT_EQ(watch_.Step(3, 13, begin_ + 13s), "step 3 has ended after 13 s: the run goes on");
  EXPECT_FALSE(watch_.Step(4, 0.2, begin_ + 14s));
}

TEST(SumRound, GivesTheSumsOnceAllHaveSentTheirs) {
  SumRound round(3);
  EXPECT_FALSE(round.Add(0, {1, 10}));
  EXPECT_FALSE(round.Add(2, {4, 40}));
  EXPECT_FALSE(round.Add(2, {9, 90}));
  EXPECT_THAT(round.Missing(), ElementsAre(1));
  EXPECT_THAT(*round.Add(1, {2, 20}), ElementsAre(7, 70));
  EXPECT_THAT(round.Missing(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(round.Add(1, {1}));
}

}  // namespace
}  // namespace adaptive_train::stall_watch_test
