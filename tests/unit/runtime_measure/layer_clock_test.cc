// The stage's times include every part, do not exceed the pass together, and do not affect results.
#include "runtime/model/layer_clock.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"
#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train::layer_clock_test {
namespace {

constexpr ModelDims kDims{.layers = 3, .heads = 2, .hidden = 32, .sequence = 24, .vocab = 50};

double SumOf(const PassTimes& times) {
  double sum = 0;
  for (std::size_t part = 0; part < kLayerParts; ++part)
    sum += times.forward[part] + times.backward[part];
  return sum;
}

TEST(LayerClock, EveryPartIsTimedWithinThePass) {
  kernels::cpu::CpuDevice<float> device(1);
  SmallStage<float> stage(kDims, StageSlice::Whole(kDims), {.micro_batch = 4}, device);
  const TokenBatch batch = RandomBatch(kDims, 4);
  PassTimes times;
  stage.state.times = &times;
  const auto begin = std::chrono::steady_clock::now();
  stage.ForwardBackward(batch, 1);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
  for (std::size_t part = 0; part < kLayerParts; ++part) {
    EXPECT_GT(times.forward[part], 0) << part;
    EXPECT_GT(times.backward[part], 0) << part;
  }
  EXPECT_LE(SumOf(times), whole.count());
  const auto block = static_cast<std::size_t>(LayerPart::kBlock);
  EXPECT_GT(times.weight_gradients[block], 0);
  EXPECT_LT(times.weight_gradients[block], times.backward[block]);

  // Another pass adds to the same sums; passes that do not train, or are not timed, do not.
  const double once = SumOf(times);
  stage.Loss(batch);
  stage.ForwardBackward(batch, 1);
  EXPECT_GT(SumOf(times), once);
  const double twice = SumOf(times);
  stage.state.times = nullptr;
  stage.ForwardBackward(batch, 1);
  EXPECT_EQ(SumOf(times), twice);
}

// In halves the second one is all that counts as weight gradients.
TEST(LayerClock, WeightGradientsAreTheSecondHalfOfABackward) {
  kernels::cpu::CpuDevice<float> device(1);
  SmallStage<float> stage(kDims, StageSlice::Whole(kDims), {.micro_batch = 4}, device);
  PassTimes times;
  stage.state.times = &times;
  const TokenBatch batch = RandomBatch(kDims, 4);
  stage.stage.ForwardTokens(stage.state, {batch.samples}, batch.tokens);
  stage.stage.HeadLoss(stage.state, batch.targets, 1);
  stage.stage.BackwardInput(stage.state, nullptr);
  const auto block = static_cast<std::size_t>(LayerPart::kBlock);
  EXPECT_EQ(times.weight_gradients[block], 0);
  const double first = times.backward[block];
  stage.stage.BackwardWeight(stage.state);
  EXPECT_GT(times.weight_gradients[block], 0);
  EXPECT_LE(times.weight_gradients[block], times.backward[block] - first);
}

TEST(LayerClock, ResultsDoNotDependOnBeingTimed) {
  kernels::cpu::CpuDevice<float> device(1);
  SmallStage<float> timed(kDims, StageSlice::Whole(kDims), {.micro_batch = 4}, device);
  SmallStage<float> plain(kDims, StageSlice::Whole(kDims), {.micro_batch = 4}, device);
  PassTimes times;
  timed.state.times = &times;
  const TokenBatch batch = RandomBatch(kDims, 3);
  EXPECT_EQ(timed.ForwardBackward(batch, 0.5), plain.ForwardBackward(batch, 0.5));
  EXPECT_EQ(timed.Gradients(), plain.Gradients());
}

}  // namespace
}  // namespace adaptive_train::layer_clock_test
