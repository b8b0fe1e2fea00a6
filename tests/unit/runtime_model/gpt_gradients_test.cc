// The whole model's gradients: float64 against central differences, float32 on the processor
// against float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train {
namespace {

class GptGradients : public testing::TestWithParam<bool> {
 protected:
  ModelDims Dims() const {
    return {.layers = 2,
            .heads = 2,
            .hidden = 6,
            .sequence = 5,
            .vocab = 7,
            .tie_embeddings = GetParam()};
  }
};

TEST_P(GptGradients, Float64AgreesWithCentralDifferencesInEveryParameter) {
  constexpr double kStep = 1e-5, kScale = 0.125;
  kernels::reference::ReferenceDevice<double> device;
  SmallStage<double> model(Dims(), StageSlice::Whole(Dims()), 3, device);
  const TokenBatch batch = RandomBatch(Dims(), 3);
  const double loss = model.ForwardBackward(batch, kScale);
  EXPECT_DOUBLE_EQ(loss, model.Loss(batch));
  for (const ParameterRange& range : model.layout.ranges()) {
    double largest = 0;
    for (std::int64_t i = range.offset; i < range.offset + range.count; ++i) {
      double& parameter = model.parameters.span()[static_cast<std::size_t>(i)];
      const double center = parameter,
                   gradient = model.gradients.span()[static_cast<std::size_t>(i)];
      parameter = center + kStep;
      const double above = model.Loss(batch);
      parameter = center - kStep;
      const double below = model.Loss(batch);
      parameter = center;
      EXPECT_NEAR(kScale * (above - below) / (2 * kStep), gradient, 1e-8)
          << range.name << " + " << i - range.offset;
      largest = std::max(largest, std::abs(gradient));
    }
    EXPECT_GT(largest, 1e-3) << range.name << ": a gradient that is nearly nothing proves nothing";
  }
}

TEST_P(GptGradients, Float32OnTheProcessorAgreesWithFloat64) {
  const ModelDims dims{.layers = 3,
                       .heads = 3,
                       .hidden = 48,
                       .sequence = 33,
                       .vocab = 61,
                       .tie_embeddings = GetParam()};
  const TokenBatch batch = RandomBatch(dims, 4);
  const double scale = 1.0 / static_cast<double>(batch.tokens.size());
  kernels::reference::ReferenceDevice<double> oracle_device;
  SmallStage<double> oracle(dims, StageSlice::Whole(dims), 4, oracle_device);
  const double expected_loss = oracle.ForwardBackward(batch, scale);
  kernels::cpu::CpuDevice device(1);
  SmallStage<float> model(dims, StageSlice::Whole(dims), 4, device);
  EXPECT_NEAR(expected_loss, model.ForwardBackward(batch, scale), 1e-5 * expected_loss);
  const std::vector<double> expected = oracle.Gradients(), actual = model.Gradients();
  for (const ParameterRange& range : model.layout.ranges()) {
    double squares = 0, worst = 0;
    for (auto i = static_cast<std::size_t>(range.offset);
         i < static_cast<std::size_t>(range.offset + range.count); ++i) {
      squares += expected[i] * expected[i];
      worst = std::max(worst, std::abs(expected[i] - actual[i]));
    }
    EXPECT_LE(worst, 1e-4 * std::sqrt(squares / static_cast<double>(range.count))) << range.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, GptGradients, testing::Bool(), [](const auto& tied) {
  return std::string(tied.param ? "Tied" : "Untied");
});

}  // namespace
}  // namespace adaptive_train
