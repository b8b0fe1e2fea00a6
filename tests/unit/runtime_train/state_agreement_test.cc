#include "runtime/train/state_agreement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/fatal_error.h"

namespace adaptive_train::state_agreement_test {
namespace {

using Kind = OwnState::Kind;

/// What rank 1 of 3 is told, whose own state is `own`, where the others' numbers in the sum are these;
/// empty: all have one state.
std::string Told(const OwnState& own, double first, double last) {
  const auto sum = [&](std::span<double> numbers) {
    EXPECT_EQ(numbers.size(), 3u);
    numbers[0] += first;
    numbers[2] += last;
  };
  try {
    RequireOneState(1, 3, own, sum);
    return "";
  } catch (const FatalError& error) {
    EXPECT_EQ(error.Code(), RankExit::kCheckpoint);
    return error.what();
  }
}

/// What a rank in that state puts into the sum.
double NumberOf(const OwnState& own) {
  double number = 0;
  try {
    RequireOneState(0, 1, own, [&](std::span<double> numbers) { number = numbers[0]; });
  } catch (const FatalError&) {
  }
  return number;
}

TEST(StateAgreement, AllHaveTheStateOfOneStep) {
  EXPECT_EQ(Told({Kind::kOfStep, 7}, 7, 7), "");
  EXPECT_EQ(Told({Kind::kOfStep, 0}, 0, 0), "") << "before the first step";
}

TEST(StateAgreement, TheFirstRankWithoutItIsNamed) {
  const double between = NumberOf({Kind::kBetween}), within = NumberOf({Kind::kWithinRound});
  EXPECT_NE(Told({Kind::kOfStep, 7}, 7, 8).find("rank 0 is after step 7, rank 2 is after step 8"),
            std::string::npos);
  EXPECT_NE(Told({Kind::kOfStep, 7}, 7, between).find("rank 2 is between two states"),
            std::string::npos);
  EXPECT_NE(Told({Kind::kBetween}, 7, 8).find("rank 1 is between two states"), std::string::npos);
  EXPECT_NE(
      Told({Kind::kWithinRound}, within, within).find("rank 0 is within a round of local steps"),
      std::string::npos);
}

}  // namespace
}  // namespace adaptive_train::state_agreement_test
