// Faults that a rank does to itself: those of its rank or node, once, after they have been told.
#include "runtime/train/fault_injector.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace adaptive_train::fault_injector_test {
namespace {

Plan TwoNodes() {
  Plan plan;
  plan.ranks.resize(4);
  for (std::size_t i = 0; i < 4; ++i) plan.ranks[i].device.node = i < 2 ? "n1" : "n2";
  return plan;
}

std::vector<RunInjection> Faults(const char* text) {
  std::vector<RunInjection> all;
  const std::vector<Injection> injections = ParseInjections(text).value();
  for (const Injection& injection : injections) all.push_back({injection});
  return all;
}

/// How a process of rank `rank` is after it has begun `step`: what waitpid says of it.
int Begun(const char* text, int rank, std::int64_t step) {
  const pid_t child = fork();
  if (child == 0) {
    int told = 0;
    FaultInjector faults(Faults(text), TwoNodes(), rank, [&told](const Injection&) { ++told; });
    faults.BeginStep(step);
    _exit(told);
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  if (WIFSTOPPED(status)) kill(child, SIGKILL), waitpid(child, nullptr, 0);
  return status;
}

bool Lives(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

TEST(FaultInjector, KillsAndStopsItsOwnRankAtItsStep) {
  const char* kill_it = "kill rank 1 at step 5";
  EXPECT_EQ(WTERMSIG(Begun(kill_it, 1, 5)), SIGKILL);
  EXPECT_TRUE(Lives(Begun(kill_it, 1, 4)));
  EXPECT_TRUE(Lives(Begun(kill_it, 1, 6))) << "resumed after it";
  EXPECT_TRUE(Lives(Begun(kill_it, 0, 5)));
  EXPECT_TRUE(WIFSTOPPED(Begun("freeze rank 2 at step 1", 2, 1)));
}

TEST(FaultInjector, StopsAllRanksOfANodeThatIsCut) {
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(WIFSTOPPED(Begun("cut node n2 at step 3", rank, 3)), rank >= 2) << rank;
}

TEST(FaultInjector, IsSlowInItsStepsAndTellsOnce) {
  int told = 0;
  FaultInjector faults(Faults("slow n1 to 50 % from 3 to 4; slow rank 0 to 40 % from 4 to 9"),
                       TwoNodes(), 0, [&told](const Injection&) { ++told; });
  const double shares[] = {1, 1, 0.5, 0.2, 0.4, 0.4};
  for (std::int64_t step = 1; step <= 6; ++step)
    EXPECT_DOUBLE_EQ(faults.BeginStep(step), shares[step - 1]) << step;
  EXPECT_EQ(told, 2);
}

TEST(FaultInjector, FailsTheFirstSaveFromItsStepOnOnRank0) {
  for (int rank : {0, 1}) {
    int told = 0;
    FaultInjector faults(Faults("fail save at 5"), TwoNodes(), rank,
                         [&told](const Injection&) { ++told; });
    EXPECT_FALSE(faults.FailsSave(4));
    EXPECT_EQ(faults.FailsSave(7), rank == 0);
    EXPECT_FALSE(faults.FailsSave(9));
    EXPECT_EQ(told, rank == 0 ? 1 : 0);
  }
}

TEST(FaultInjector, LeavesOutWhatHasHappened) {
  auto all = Faults("slow n1 to 50 % from 1 to 9; fail save at 5");
  for (RunInjection& one : all) one.done = true;
  FaultInjector faults(all, TwoNodes(), 0, [](const Injection&) { FAIL(); });
  EXPECT_EQ(faults.BeginStep(5), 1);
  EXPECT_FALSE(faults.FailsSave(5));
}

}  // namespace
}  // namespace adaptive_train::fault_injector_test
