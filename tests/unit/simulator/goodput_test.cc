// Simulated runs on failing nodes against closed forms.
#include "launcher/simulator/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace adaptive_train::goodput_test {
namespace {

constexpr double kDay = 86400;

/// Failures every hour on average, and a new job at once.
GoodputCase Hourly() {
  GoodputCase run;
  run.nodes = 100;
  run.node_mtbf_s = 100 * 3600.0;
  run.after = AfterFailure::kRequeue;
  run.interval_s = 600;
  run.save_s = 60;
  run.launch_s = 120;
  run.horizon_s = 1000 * kDay;
  return run;
}

/// Daly 2006, equation 20: the expected time of a segment with its save, which may fail and be
/// begun again any number of times, as may the restart.
double ClosedForm(const GoodputCase& run) {
  const double mtbf = run.node_mtbf_s / run.nodes;
  return run.interval_s / (mtbf * std::exp(run.launch_s / mtbf) *
                           (std::exp((run.interval_s + run.save_s) / mtbf) - 1));
}

double Sum(const Goodput& shares) {
  return shares.useful + shares.again + shares.saving + shares.down + shares.missing;
}

TEST(SimulateGoodput, IsTheClosedForm) {
  for (const double interval : {100.0, 600.0, 3000.0}) {
    for (const double launch : {0.0, 120.0, 1800.0}) {
      GoodputCase run = Hourly();
      run.interval_s = interval;
      run.launch_s = launch;
      const Goodput found = SimulateGoodput(run, 1);
      // 24,000 failures: their number alone varies by 0.7 %.
      EXPECT_NEAR(found.useful / ClosedForm(run), 1, 0.02) << interval << " s, " << launch << " s";
      EXPECT_NEAR(Sum(found), 1, 1e-9);
      EXPECT_NEAR(found.missing, 0, 1e-9);
    }
  }
}

TEST(SimulateGoodput, IsHighestAtYoungAndDalysInterval) {
  GoodputCase run = Hourly();
  run.interval_s = YoungDalyInterval(run.save_s, 3600);
  const double best = SimulateGoodput(run, 1).useful;
  for (const double factor : {0.4, 2.5}) {
    GoodputCase other = run;
    other.interval_s *= factor;
    EXPECT_LT(SimulateGoodput(other, 1).useful, 0.99 * best) << factor;
  }
  EXPECT_NEAR(YoungDalyInterval(60, 3600), std::sqrt(2 * 60 * 3600.0), 60);
}

TEST(SimulateGoodput, IsOneWithoutFailuresAndSaves) {
  GoodputCase run;
  run.node_mtbf_s = 1e30;
  EXPECT_NEAR(SimulateGoodput(run, 1).useful, 1, 1e-9);
  run.save_s = 60;
  EXPECT_NEAR(SimulateGoodput(run, 1).useful, 10.0 / 11, 1e-3);
  run.save_s = 0;
  run.after = AfterFailure::kSameAllocation;
  run.memory_steps = 1;
  run.memory_share = 0.25;
  const Goodput found = SimulateGoodput(run, 1);
  EXPECT_NEAR(found.useful, 0.8, 1e-9);
  EXPECT_NEAR(found.saving, 0.2, 1e-9);
}

TEST(SimulateGoodput, WaitsForAPersonAndTheQueue) {
  GoodputCase run = Hourly();
  run.interval_s = 10;
  run.save_s = run.launch_s = 0;
  run.horizon_s = 400 * kDay;
  run.detection_s = 100;
  run.queue_s = 900;
  run.notice_s = 2600;
  EXPECT_NEAR(SimulateGoodput(run, 1).useful, 3600.0 / (3600 + 1000), 0.015);
  run.after = AfterFailure::kByHand;
  EXPECT_NEAR(SimulateGoodput(run, 1).useful, 0.5, 0.015);
}

TEST(SimulateGoodput, InTheAllocationItGoesOnWithFewerNodesOrWithSpares) {
  GoodputCase run;
  run.nodes = 100;
  run.node_mtbf_s = 100 * kDay;  // one a day
  run.after = AfterFailure::kSameAllocation;
  run.interval_s = 100;
  run.horizon_s = 30 * kDay;
  double fewer = 0, spared = 0, limited = 0;
  constexpr int kRuns = 200;
  for (int seed = 0; seed < kRuns; ++seed) {
    GoodputCase other = run;
    fewer += SimulateGoodput(other, static_cast<std::uint64_t>(seed)).useful / kRuns;
    other.spares = 100;
    spared += SimulateGoodput(other, static_cast<std::uint64_t>(seed)).useful / kRuns;
    other.spares = 0;
    other.least_share = 0.9;
    limited += SimulateGoodput(other, static_cast<std::uint64_t>(seed)).useful / kRuns;
  }
  // Nodes left decay as exp(-t / MTBF), whose mean over 30 of 100 days is this.
  EXPECT_NEAR(fewer, (1 - std::exp(-0.3)) / 0.3, 0.005);
  EXPECT_NEAR(spared, 0.5, 0.001) << "half of all nodes are spares";
  EXPECT_NEAR(limited, 0.95, 0.005) << "a new job has all nodes again";
}

TEST(SimulateGoodput, StateInMemoryLosesHalfOfItsStepsAndNoReading) {
  GoodputCase run = Hourly();
  run.after = AfterFailure::kSameAllocation;
  run.step_s = 10;
  run.interval_s = 1e9;
  run.save_s = run.launch_s = 0;
  run.read_s = 1000;
  run.detection_s = 3;
  run.restart_s = 2;
  run.horizon_s = 10 * kDay;
  run.node_mtbf_s = 1e7;  // 86 failures
  run.nodes = 1000;
  run.spares = 200;
  run.memory_steps = 12;
  double again = 0, down = 0, failures = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Goodput found = SimulateGoodput(run, seed);
    again += found.again;
    down += found.down;
    failures += static_cast<double>(found.failures);
  }
  const double all = run.horizon_s * 1200 / 1000;
  EXPECT_NEAR(again * all / failures, 60, 3) << "seconds: half of 12 steps";
  EXPECT_NEAR(down * all / failures, 5, 0.5) << "nothing is read from disk";
}

/// Until the copies are made again, of two nodes the second holds the only one.
TEST(SimulateGoodput, ASecondLossMayTakeTheCopy) {
  GoodputCase run;
  run.nodes = 2;
  run.spares = 1000;
  run.node_mtbf_s = 1e5;
  run.after = AfterFailure::kSameAllocation;
  run.step_s = 1e4;
  run.memory_steps = 1;
  run.interval_s = 1e12;
  run.read_s = 1;
  run.horizon_s = 3e5;
  double down = 0, failures = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Goodput found = SimulateGoodput(run, seed);
    down += found.down * run.horizon_s * 1002 / 2;
    failures += static_cast<double>(found.failures);
  }
  // A failure every 5e4 s, which may come within a step of the one before.
  EXPECT_NEAR(down / failures, 1 - std::exp(-0.2), 0.03);
}

TEST(SimulateGoodput, IsTheSameForTheSameSeedOnly) {
  GoodputCase run = Hourly();
  run.horizon_s = 30 * kDay;
  EXPECT_EQ(SimulateGoodput(run, 7).useful, SimulateGoodput(run, 7).useful);
  EXPECT_NE(SimulateGoodput(run, 7).useful, SimulateGoodput(run, 8).useful);
}

/// Checkpoints that are still being written do not count.
TEST(SimulateGoodput, ACheckpointCountsWhenItIsWritten) {
  GoodputCase run = Hourly();
  run.save_s = run.launch_s = 0;
  run.interval_s = 60;
  const Goodput at_once = SimulateGoodput(run, 1);
  run.write_s = 300;
  const Goodput later = SimulateGoodput(run, 1);
  const double failures = static_cast<double>(later.failures);
  EXPECT_NEAR((later.again - at_once.again) * run.horizon_s / failures, 290, 15);
}

}  // namespace
}  // namespace adaptive_train::goodput_test
