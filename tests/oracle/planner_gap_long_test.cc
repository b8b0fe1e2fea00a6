// The planner against the best plans of 200 clusters of up to 8 devices, and of 3,000 more
// problems, where it may be off, but seldom.
#include <gtest/gtest.h>

#include "tests/oracle/planner_gap.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::oracle::planner_gap_long_test {
namespace {

TEST(PlannerGapLong, IsSmallOn200Clusters) {
  const Gaps gaps = MeasureGaps(SmallProblem, 1, 201);
  EXPECT_LE(gaps.mean, 0.01);
  EXPECT_LE(gaps.worst, 0.05);
  EXPECT_GT(gaps.possible, 160);
  EXPECT_GT(gaps.impossible, 5);
}

TEST(PlannerGapLong, IsSmallOnMostClusters) {
  const Gaps gaps = MeasureGaps(SmallProblem, 201, 1201);
  EXPECT_LE(gaps.mean, 0.01);
  EXPECT_LE(gaps.far, 0.01 * gaps.possible);
}

TEST(PlannerGapLong, IsSmallOnMostTinyClusters) {
  const Gaps gaps = MeasureGaps(TinyProblem, 1, 2001);
  EXPECT_LE(gaps.mean, 0.01);
  EXPECT_LE(gaps.far, 0.01 * gaps.possible);
  EXPECT_GT(gaps.impossible, 200);
}

}  // namespace
}  // namespace adaptive_train::oracle::planner_gap_long_test
