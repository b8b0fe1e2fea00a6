// What one user may ask, by a clock that the test sets.
#include "db/service/user_budgets.h"

#include <gtest/gtest.h>

namespace adaptive_train::user_budgets_test {
namespace {

using namespace std::chrono_literals;
using Clock = UserBudgets::Clock;

constexpr uid_t kAnn = 1, kBob = 2;

TEST(UserBudgets, ASecondsRequestsMayComeAtOnceAndMoreWait) {
  UserBudgets budgets({.rate = 100, .bytes_of_day = 1000});
  Clock::time_point now{};
  now += 1000h;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(budgets.Wait(kAnn, now), 0s) << i;
  EXPECT_EQ(budgets.Wait(kAnn, now), 10ms);
  EXPECT_EQ(budgets.Wait(kAnn, now), 20ms);
  EXPECT_EQ(budgets.Wait(kBob, now), 0s);
  EXPECT_EQ(budgets.Wait(kAnn, now + 30ms), 0s);
  // Whoever keeps to the rate never waits.
  for (int i = 0; i < 1000; ++i) {
    now += 10ms;
    EXPECT_EQ(budgets.Wait(kBob, now), 0s);
  }
}

TEST(UserBudgets, ADayBeginsWithItsFirstRequest) {
  UserBudgets budgets({.rate = 100, .bytes_of_day = 1000});
  Clock::time_point now{};
  now += 1000h;
  EXPECT_TRUE(budgets.Spend(kAnn, 600, now));
  EXPECT_FALSE(budgets.Spend(kAnn, 401, now));
  EXPECT_TRUE(budgets.Spend(kAnn, 400, now));
  EXPECT_FALSE(budgets.Spend(kAnn, 1, now + 23h));
  EXPECT_TRUE(budgets.Spend(kBob, 1000, now + 23h));
  budgets.Forget(now + 23h);
  EXPECT_FALSE(budgets.Spend(kAnn, 1, now + 23h)) << "its day is not over";
  EXPECT_TRUE(budgets.Spend(kAnn, 1000, now + 24h));
  budgets.Forget(now + 100h);
  EXPECT_TRUE(budgets.Spend(kAnn, 1000, now + 100h));
}

}  // namespace
}  // namespace adaptive_train::user_budgets_test
