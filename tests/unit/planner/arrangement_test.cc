// What the search keeps up to date against the judgement of the layout that comes of it.
#include "launcher/planner/arrangement.h"

#include <gtest/gtest.h>

#include <numeric>

#include "launcher/planner/cuts.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/shapes.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::arrangement_test {
namespace {

TEST(Arrangement, ScoresAsItsLayoutCosts) {
  int compared = 0, pipelines = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    PlanProblem problem = oracle::SmallProblem(seed);
    oracle::Draws draws(seed);
    for (DeviceKind& kind : problem.kinds)
      kind.transfer_s_per_byte = draws.Chance(0.3) ? 0 : draws.LogUniform(1e-11, 1e-8);
    SearchTables tables(problem);
    const std::vector<Group> groups = MakeGroups(tables, 1);
    for (const ShapeRange& range : AllShapes(problem, 1, groups)) {
      if (range.shape.Groups() > std::ssize(groups)) continue;
      std::vector<int> places(static_cast<std::size_t>(range.shape.Groups()));
      std::iota(places.begin(), places.end(), 0);
      Arrangement arrangement(tables, groups, range.shape);
      const double score = arrangement.Set({FirstCuts(problem, range.shape.stages), places});
      if (score >= Arrangement::kImpossible) continue;
      ASSERT_NEAR(CostOf(problem, arrangement.ToLayout()).step, score, 1e-9 * score)
          << "seed " << seed << ", " << range.shape.stages << " stages x " << range.shape.data;
      ++compared;
      pipelines += range.shape.stages > 1 && range.shape.data > 1;
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(pipelines, 100);
}

}  // namespace
}  // namespace adaptive_train::arrangement_test
