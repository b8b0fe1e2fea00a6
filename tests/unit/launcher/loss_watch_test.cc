// Loss spikes: what stands out, what does not, what the statistics make of it.
#include "launcher/report/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace adaptive_train::loss_watch_test {
namespace {

/// Losses around `level`, up and down by `swing`.
void Feed(LossWatch& watch, int steps, double level, double swing) {
  for (int i = 0; i < steps; ++i) watch.Judge(level + (i % 2 == 0 ? swing : -swing));
}

TEST(LossWatch, SaysNothingDuringTheWarmup) {
  LossWatch watch;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(watch.Judge(i == 10 ? 100.0 : 3.0));
  EXPECT_TRUE(watch.Judge(3.0));
}

TEST(LossWatch, NamesExpectationAndDeviations) {
  LossWatch watch;
  Feed(watch, 400, 3, 0.1);
  const auto verdict = watch.Judge(3.4);
  ASSERT_TRUE(verdict);
  EXPECT_NEAR(verdict->expected, 3, 0.01);
  EXPECT_NEAR(verdict->z, 4, 0.3);
  EXPECT_FALSE(verdict->spike);
  EXPECT_TRUE(watch.Judge(4.0)->spike);
}

TEST(LossWatch, ConstantLossesDivideByNothing) {
  for (const double level : {0.0, 2.5}) {
    LossWatch watch;
    for (int i = 0; i < 100; ++i) {
      const auto verdict = watch.Judge(level);
      if (i < 20) continue;
      ASSERT_TRUE(verdict);
      EXPECT_NEAR(verdict->z, 0, 1e-9) << level;
      EXPECT_FALSE(verdict->spike);
    }
    EXPECT_FALSE(watch.Judge(level * 1.005)->spike) << level;
    const auto verdict = watch.Judge(level + 1);
    EXPECT_TRUE(std::isfinite(verdict->z)) << level;
    EXPECT_TRUE(verdict->spike) << level;
  }
}

TEST(LossWatch, LossesThatAreNoNumbersChangeNothing) {
  LossWatch watch, undisturbed;
  for (int i = 0; i < 60; ++i) {
    const double loss = 3 + 0.1 * std::sin(i);
    if (i % 3 == 0) {
      EXPECT_FALSE(watch.Judge(std::nan("")));
      EXPECT_FALSE(watch.Judge(std::numeric_limits<double>::infinity()));
      EXPECT_FALSE(watch.Judge(-std::numeric_limits<double>::infinity()));
    }
    const auto verdict = watch.Judge(loss), expected = undisturbed.Judge(loss);
    ASSERT_EQ(verdict.has_value(), expected.has_value()) << i;
    if (verdict) {
      EXPECT_EQ(verdict->z, expected->z) << i;
    }
  }
}

TEST(LossWatch, OneSpikeDoesNotHideTheNext) {
  LossWatch watch;
  Feed(watch, 100, 3, 0.05);
  EXPECT_TRUE(watch.Judge(50)->spike);
  const auto after = watch.Judge(3);
  EXPECT_NEAR(after->expected, 3, 0.05);
  EXPECT_FALSE(after->spike);
  EXPECT_TRUE(watch.Judge(4)->spike);
}

TEST(LossWatch, ALossThatStaysHighBecomesNormal) {
  LossWatch watch;
  Feed(watch, 100, 3, 0.05);
  int spikes = 0;
  for (int i = 0; i < 100; ++i) spikes += watch.Judge(5 + 0.05 * (i % 2))->spike ? 1 : 0;
  EXPECT_GE(spikes, 3);
  EXPECT_LE(spikes, 20);
  for (int i = 0; i < 200; ++i) watch.Judge(5 + 0.05 * (i % 2));
  EXPECT_NEAR(watch.Judge(5)->expected, 5, 0.1);
  EXPECT_TRUE(watch.Judge(6)->spike);
}

TEST(LossWatch, AFallingNoisyLossHasNoSpikes) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.1);
  LossWatch watch;
  for (int i = 0; i < 5000; ++i) {
    const double loss = 2 + 8 * std::exp(-i / 300.0) + noise(random);
    const auto verdict = watch.Judge(loss);
    EXPECT_FALSE(verdict && verdict->spike) << "step " << i << ", loss " << loss;
  }
}

TEST(LossWatch, ExpectsALineToGoOn) {
  LossWatch watch;
  for (int i = 0; i < 70; ++i) watch.Judge(10 - 0.05 * i);
  EXPECT_NEAR(watch.Judge(6.5)->expected, 6.5, 1e-6);
}

TEST(LossWatch, FindsSpikesWhileTheLossStillFallsFast) {
  for (const int at : {60, 100, 150, 1000}) {
    std::mt19937 random(7);
    std::normal_distribution<double> noise(0, 0.03);
    LossWatch watch;
    for (int i = 0; i < at; ++i) watch.Judge(2 + 8 * std::exp(-i / 60.0) + noise(random));
    const double loss = 2 + 8 * std::exp(-at / 60.0);
    const auto verdict = watch.Judge(loss + 2);
    EXPECT_NEAR(verdict->expected, loss, 0.5) << at;
    EXPECT_TRUE(verdict->spike) << "step " << at << ", z " << verdict->z;
  }
}

TEST(LossWatch, AFallIsNoSpike) {
  LossWatch watch;
  Feed(watch, 100, 3, 0.05);
  const auto verdict = watch.Judge(0.1);
  EXPECT_LT(verdict->z, -6);
  EXPECT_FALSE(verdict->spike);
}

}  // namespace
}  // namespace adaptive_train::loss_watch_test
