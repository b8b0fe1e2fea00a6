// The planner's CostOf and MemoryOf against the oracle's judge.
#include "tests/oracle/judge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/oracle/random_layout.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::oracle::judge_test {
namespace {

void ExpectSameJudgement(const PlanProblem& problem, const Layout& layout) {
  const Judgement judgement = Judge(problem, layout);
  const StepCost cost = CostOf(problem, layout);
  if (std::isinf(judgement.step)) {
    EXPECT_EQ(cost.step, judgement.step);
  } else {
    EXPECT_NEAR(cost.step, judgement.step, 1e-12 * judgement.step);
    EXPECT_NEAR(cost.compute + cost.bubble + cost.activations + cost.gradients + cost.update,
                cost.step, 1e-12 * cost.step);
    for (const double part :
         {cost.compute, cost.bubble, cost.activations, cost.gradients, cost.update})
      EXPECT_GE(part, -1e-12 * cost.step);
  }
  const std::vector<double> memory = MemoryOf(problem, layout);
  ASSERT_EQ(memory.size(), judgement.memory_bytes.size());
  for (std::size_t device = 0; device < memory.size(); ++device)
    EXPECT_NEAR(memory[device], judgement.memory_bytes[device],
                1e-12 * judgement.memory_bytes[device]);
}

/// 12,000 layouts of 600 problems, with pipelines, replicas and tensor ranks at once.
TEST(Judge, AgreesWithThePlannersOwnFigures) {
  int finite = 0, pipelines = 0, replicas = 0, tensors = 0, partial = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    PlanProblem problem = seed % 2 == 0 ? TinyProblem(seed) : SmallProblem(seed);
    Draws draws(seed);
    // Every third one has devices whose processors move messages.
    for (DeviceKind& kind : problem.kinds)
      if (seed % 3 == 0) kind.transfer_s_per_byte = draws.LogUniform(1e-11, 1e-8);
    for (int i = 0; i < 20; ++i) {
      const Layout layout = RandomLayout(problem, draws);
      ExpectSameJudgement(problem, layout);
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", layout " << i;
      finite += std::isfinite(Judge(problem, layout).step);
      pipelines += layout.Stages() > 2 && layout.data > 1;
      replicas += layout.data > 2;
      tensors += layout.tensor > 1;
      for (const ReplicaShare& share : layout.shares)
        partial += share.samples % share.micro_batch != 0;
    }
  }
  EXPECT_GT(finite, 10000);
  EXPECT_GT(pipelines, 300);
  EXPECT_GT(replicas, 1000);
  EXPECT_GT(tensors, 1000);
  EXPECT_GT(partial, 1000);
}

}  // namespace
}  // namespace adaptive_train::oracle::judge_test
