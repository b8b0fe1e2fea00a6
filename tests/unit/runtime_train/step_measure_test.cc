// Every moment of a step is booked to one activity.
#include "runtime/train/step_measure.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "runtime/comm/communicator.h"

namespace adaptive_train::step_measure_test {
namespace {

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

class StepMeasureTest : public testing::Test {
 protected:
  double All() {
    return measure_.SecondsOf(Activity::kOther) + measure_.SecondsOf(Activity::kCompute) +
           measure_.SecondsOf(Activity::kExposedComm) + measure_.SecondsOf(Activity::kBubble);
  }
  std::unique_ptr<Communicator> communicator_ = Communicator::Open(0, 1).value();
  StepMeasure measure_{*communicator_};
};

TEST_F(StepMeasureTest, WaitingInsideOfAPassIsNotComputing) {
  measure_.Begin();
  const int given = measure_.As(Activity::kCompute, [&] {
    Pause();
    measure_.As(Activity::kExposedComm, Pause);
    return 7;
  });
  EXPECT_EQ(given, 7);
  const double compute = measure_.SecondsOf(Activity::kCompute);
  EXPECT_GE(compute, 0.02);
  EXPECT_GE(measure_.SecondsOf(Activity::kExposedComm), 0.02);
  // What is booked to waiting was not booked to computing as well.
  const double all = All();
  EXPECT_LE(all, measure_.Seconds());
  Pause();
  EXPECT_EQ(measure_.SecondsOf(Activity::kCompute), compute);
}

TEST_F(StepMeasureTest, WhatIsBookedIsTheWholeStep) {
  measure_.As(Activity::kBubble, Pause);  // before the step
  measure_.Begin();
  Pause();
  measure_.As(Activity::kCompute, [&] { measure_.As(Activity::kExposedComm, Pause); });
  measure_.As(Activity::kBubble, Pause);
  RankMetrics metrics;
  const double before = measure_.Seconds();
  measure_.FillTimes(metrics);
  EXPECT_GE(metrics.step_s, before);
  EXPECT_LE(metrics.step_s, measure_.Seconds());
  const double booked =
      metrics.compute_s + metrics.exposed_comm_s + metrics.bubble_s + metrics.other_s;
  EXPECT_NEAR(booked, metrics.step_s, 1e-9);
  EXPECT_GE(metrics.other_s, 0.02);
  EXPECT_GE(metrics.exposed_comm_s, 0.02);
  EXPECT_LE(metrics.bubble_s, metrics.step_s - 0.04);
}

TEST_F(StepMeasureTest, AnExceptionGoesBackToWhatWasBefore) {
  measure_.Begin();
  EXPECT_THROW(measure_.As(Activity::kCompute, [] { throw std::runtime_error("lost"); }),
               std::runtime_error);
  const double compute = measure_.SecondsOf(Activity::kCompute);
  Pause();
  EXPECT_EQ(measure_.SecondsOf(Activity::kCompute), compute);
  EXPECT_GE(measure_.SecondsOf(Activity::kOther), 0.02);
}

TEST_F(StepMeasureTest, AtAPaceComputingTakesLongerAndWaitingDoesNot) {
  measure_.Begin(0.25);
  measure_.As(Activity::kCompute, Pause);
  measure_.As(Activity::kExposedComm, Pause);
  EXPECT_GE(measure_.SecondsOf(Activity::kCompute), 0.08);
  EXPECT_GE(measure_.Seconds(), 0.1);
}

TEST_F(StepMeasureTest, AStepBeginsWithNothing) {
  measure_.As(Activity::kCompute, Pause);
  measure_.Begin();
  EXPECT_EQ(measure_.SecondsOf(Activity::kCompute), 0);
  const double all = All();
  EXPECT_LE(all, measure_.Seconds());
}

}  // namespace
}  // namespace adaptive_train::step_measure_test
