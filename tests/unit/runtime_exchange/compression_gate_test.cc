#include "runtime/exchange/compression_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace adaptive_train::compression_gate_test {
namespace {

struct Trial {
  int compressed = 0;  // steps until the decision
  int steps = 0;
  double lost_s = 0;  // above a dense step, per step
  std::string line;
};

/// Runs steps that take `dense_s` and `compressed_s` until the gate has decided.
Trial Decide(CompressionGate& gate, double dense_s, double compressed_s, double exposed_s,
             double wobble = 0) {
  Trial run;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (; gate.Deciding() && run.steps < 200; ++run.steps) {
    const bool compress = gate.Compress();
    run.compressed += compress ? 1 : 0;
    const double step_s = (compress ? compressed_s : dense_s) * (1 + wobble * uniform(random));
    run.lost_s += std::max(0.0, step_s - dense_s);
    if (const auto line = gate.Took({step_s, exposed_s})) run.line = *line;
  }
  return run;
}

TEST(CompressionGate, TriesNothingWhereTheExchangeIsHidden) {
  CompressionGate gate;
  const Trial run = Decide(gate, 1.0, 0.5, 0.01);
  EXPECT_EQ(run.compressed, 0);
  EXPECT_FALSE(gate.Compress());
  EXPECT_EQ(run.line, "compression off: the exchange takes 1.0 % of a dense step beyond backward");
}

TEST(CompressionGate, TurnsOnWhatSavesTime) {
  CompressionGate gate;
  const Trial run = Decide(gate, 1.0, 0.6, 0.5, 0.05);
  EXPECT_TRUE(gate.Compress());
  EXPECT_LE(run.steps, 3 + 1 + 8);
  EXPECT_EQ(run.line.rfind("compression on: a compressed step takes 0.", 0), 0u) << run.line;
}

TEST(CompressionGate, GivesUpSoonWhatIsFarSlower) {
  CompressionGate gate;
  const Trial run = Decide(gate, 1.0, 1.9, 0.3);
  EXPECT_FALSE(gate.Compress());
  EXPECT_LE(run.lost_s, 3.0);  // 1 % of 300 steps
}

TEST(CompressionGate, AFirstStepThatIsDearEndsATrialThatDoesNotPay) {
  CompressionGate gate;
  int step = 0, compressed = 0;
  for (; gate.Deciding() && step < 200; ++step) {
    const bool compress = gate.Compress();
    // Allocation takes two steps; then each kind is sometimes as fast as the other.
    const double slower = compressed == 0 ? 3.2 : compressed % 2 == 0 ? 1.1 : 0.99;
    compressed += compress ? 1 : 0;
    gate.Took({compress ? slower : 1.0, 0.3});
  }
  EXPECT_FALSE(gate.Compress());
  EXPECT_EQ(compressed, 3);
}

TEST(CompressionGate, ATieIsOff) {
  CompressionGate gate;
  const Trial run = Decide(gate, 1.0, 0.99, 0.3, 0.04);
  EXPECT_FALSE(gate.Compress());
  EXPECT_LE(run.steps, 3 + 1 + 4 * CompressionGate::kMaxRounds);
}

TEST(CompressionGate, ADriftOfTheMachineDecidesNothing) {
  CompressionGate gate;
  double step_s = 1.0;
  while (gate.Deciding()) {
    gate.Took({step_s, 0.3});
    step_s *= 0.98;  // whatever the kind
  }
  EXPECT_FALSE(gate.Compress());
}

TEST(CompressionGate, AsksAgainLongAfter) {
  CompressionGate gate;
  Decide(gate, 1.0, 0.6, 0.5);
  ASSERT_TRUE(gate.Compress());
  for (std::int64_t i = 0; i < CompressionGate::kStepsBetween; ++i) {
    EXPECT_FALSE(gate.Deciding());
    gate.Took({0.6, 0.1});
  }
  ASSERT_TRUE(gate.Deciding());
  const Trial run = Decide(gate, 1.0, 1.4, 0.5);  // the links have become fast
  EXPECT_FALSE(gate.Compress());
  EXPECT_EQ(run.line.rfind("compression turned off: ", 0), 0u) << run.line;
}

TEST(CompressionGate, TakesUpAnEarlierDecision) {
  CompressionGate gate;
  EXPECT_FALSE(gate.Decision());
  gate.Decide(true);
  EXPECT_FALSE(gate.Deciding());
  EXPECT_TRUE(gate.Compress());
  EXPECT_EQ(gate.Decision(), true);
}

}  // namespace
}  // namespace adaptive_train::compression_gate_test
