// The planner against the best plans of 40 clusters of up to 8 devices; 160 more have the label
// long.
#include <gtest/gtest.h>

#include "tests/oracle/planner_gap.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::oracle::planner_gap_test {
namespace {

TEST(PlannerGap, IsSmallOn40Clusters) {
  const Gaps gaps = MeasureGaps(SmallProblem, 1, 41);
  EXPECT_LE(gaps.mean, 0.01);
  EXPECT_LE(gaps.worst, 0.05);
  EXPECT_GT(gaps.possible, 30);
}

}  // namespace
}  // namespace adaptive_train::oracle::planner_gap_test
