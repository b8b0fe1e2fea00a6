// The optimizer's step over the arena, the learning rate, and both together: a model that learns.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "runtime/train/adamw_groups.h"
#include "runtime/train/loss_scaler.h"
#include "runtime/train/lr_schedule.h"
#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train::training_test {
namespace {

constexpr ModelDims kDims{.layers = 2, .heads = 2, .hidden = 32, .sequence = 16, .vocab = 20};

TEST(AdamWStep, DecaysMatricesOnly) {
  kernels::cpu::CpuDevice<float> device(1);
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  const auto size = static_cast<std::size_t>(layout.size());
  std::vector<float> parameters(size, 1.0F), first(size), second(size);
  const std::vector<float> gradients(size);
  AdamWStep<float>(device, layout, {.weight_decay = 0.5},
                   {parameters, gradients, first, second, {}}, 0, layout.size(), 1, 0.1, 1);
  for (const ParameterRange& range : layout.ranges()) {
    EXPECT_FLOAT_EQ(range.decay ? 0.95F : 1.0F, parameters[static_cast<std::size_t>(range.offset)])
        << range.name;
    EXPECT_FLOAT_EQ(range.decay ? 0.95F : 1.0F,
                    parameters[static_cast<std::size_t>(range.offset + range.count - 1)]);
  }
}

TEST(AdamWStep, ShardsUpdateWhatTheWholeWould) {
  kernels::cpu::CpuDevice<float> device(1);
  SmallStage<float> model(kDims, StageSlice::Whole(kDims), {.micro_batch = 2}, device);
  model.ForwardBackward(RandomBatch(kDims, 2), 0.1);
  const auto size = static_cast<std::size_t>(model.layout.size());
  const auto step_in_pieces = [&](std::vector<std::int64_t> bounds) {
    std::vector<float> parameters(model.parameters.span().begin(), model.parameters.span().end()),
        first(size), second(size);
    const OptimizerArenas<float> arenas{parameters, model.gradients.span(), first, second, {}};
    for (std::size_t i = 1; i < bounds.size(); ++i) {
      AdamWStep<float>(device, model.layout, {.weight_decay = 0.1}, arenas, bounds[i - 1],
                       bounds[i], 1, 0.01, 0.7);
    }
    return parameters;
  };
  EXPECT_EQ(step_in_pieces({0, model.layout.size()}),
            step_in_pieces({0, 1, 700, 701, 5000, model.layout.size()}));
}

TEST(LrSchedule, WarmsUpAndFalls) {
  LrSchedule schedule{.shape = LrShape::kConstant, .peak = 2, .warmup_steps = 4, .total_steps = 11};
  EXPECT_DOUBLE_EQ(0.5, schedule.At(1));
  EXPECT_DOUBLE_EQ(2, schedule.At(4));
  EXPECT_DOUBLE_EQ(2, schedule.At(11));
  EXPECT_DOUBLE_EQ(2, schedule.At(100));
  schedule.shape = LrShape::kLinear;
  EXPECT_DOUBLE_EQ(1, schedule.At(2));
  EXPECT_DOUBLE_EQ(2, schedule.At(4));
  EXPECT_DOUBLE_EQ(1, schedule.At(8));
  EXPECT_DOUBLE_EQ(0.25, schedule.At(11));
  EXPECT_DOUBLE_EQ(0, schedule.At(12));
  schedule.shape = LrShape::kCosine;
  EXPECT_DOUBLE_EQ(2, schedule.At(4));
  EXPECT_DOUBLE_EQ(1, schedule.At(8));
  EXPECT_DOUBLE_EQ(1 + std::cos(3.14159265358979323846 * 6 / 8), schedule.At(10));
  EXPECT_GT(schedule.At(11), 0);
  EXPECT_DOUBLE_EQ(0, schedule.At(12));
}

TEST(LrSchedule, EdgesAreDefined) {
  EXPECT_DOUBLE_EQ(3, (LrSchedule{LrShape::kCosine, 3, 0, 10}.At(1)));
  EXPECT_DOUBLE_EQ(3, (LrSchedule{LrShape::kLinear, 3, 0, 1}.At(1)));
  EXPECT_DOUBLE_EQ(3, (LrSchedule{LrShape::kCosine, 3, 10, 10}.At(10)));
  EXPECT_DOUBLE_EQ(1.5, (LrSchedule{LrShape::kCosine, 3, 20, 10}.At(10)));
}

TEST(LossScaler, FallsAtOnceAndRisesAfterAWhile) {
  LossScaler scaler;
  scaler.Update(false);
  EXPECT_EQ(LossScaler::kInitial / 2, scaler.scale);
  for (std::int64_t i = 1; i < LossScaler::kGrowthSteps; ++i) scaler.Update(true);
  EXPECT_EQ(LossScaler::kInitial / 2, scaler.scale);
  scaler.Update(true);
  EXPECT_EQ(LossScaler::kInitial, scaler.scale);
  for (int i = 0; i < 100; ++i) scaler.Update(false);
  EXPECT_EQ(LossScaler::kLeast, scaler.scale);
  for (std::int64_t i = 0; i < 100 * LossScaler::kGrowthSteps; ++i) scaler.Update(true);
  EXPECT_EQ(LossScaler::kMost, scaler.scale);
}

TEST(Training, LearnsABatchByHeart) {
  kernels::cpu::CpuDevice<float> device(1);
  SmallStage<float> model(kDims, StageSlice::Whole(kDims), {.micro_batch = 4}, device);
  std::vector<float> parameters(model.parameters.size()), first(parameters.size()),
      second(parameters.size());
  InitializeParameters(model.layout, 1, model.parameters.span());
  const TokenBatch batch = RandomBatch(kDims, 4);
  const double tokens = static_cast<double>(batch.tokens.size());
  EXPECT_NEAR(std::log(20), model.Loss(batch) / tokens, 0.1);
  for (std::int64_t step = 1; step <= 100; ++step) {
    model.gradients.Clear();
    model.ForwardBackward(batch, 1 / tokens);
    AdamWStep<float>(device, model.layout, {},
                     {model.parameters.span(), model.gradients.span(), first, second, {}}, 0,
                     model.layout.size(), step, 0.01, 1);
  }
  EXPECT_LT(model.Loss(batch) / tokens, 0.1);
}

}  // namespace
}  // namespace adaptive_train::training_test
