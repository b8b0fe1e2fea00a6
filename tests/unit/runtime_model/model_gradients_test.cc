// The whole model's gradients: float64 against central differences, the CPU's precisions against
// float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train::model_gradients_test {
namespace {

using Case = std::tuple<ModelKind, bool>;

class ModelGradients : public testing::TestWithParam<Case> {
 protected:
  ModelDims Dims() const {
    ModelDims dims = SmallDims(std::get<0>(GetParam()), std::get<1>(GetParam()));
    dims.layers = 2;
    return dims;
  }
};

/// Compares every parameter's gradient with the difference of losses on both sides of it.
void ExpectCentralDifferences(SmallStage<double>& model, double scale,
                              const std::function<double()>& loss_now) {
  constexpr double kStep = 1e-5;
  const std::vector<double> gradients = model.Gradients();
  for (const ParameterRange& range : model.layout.ranges()) {
    double largest = 0;
    for (std::int64_t i = range.offset; i < range.offset + range.count; ++i) {
      double& parameter = model.parameters.span()[static_cast<std::size_t>(i)];
      const double center = parameter, gradient = gradients[static_cast<std::size_t>(i)];
      parameter = center + kStep;
      const double above = loss_now();
      parameter = center - kStep;
      const double below = loss_now();
      parameter = center;
      EXPECT_NEAR(scale * (above - below) / (2 * kStep), gradient,
                  1e-7 * std::max(1.0, std::abs(gradient)))
          << range.name << " + " << i - range.offset;
      largest = std::max(largest, std::abs(gradient));
    }
    EXPECT_GT(largest, 1e-3) << range.name << ": a gradient that is nearly nothing proves nothing";
  }
}

TEST_P(ModelGradients, Float64AgreesWithCentralDifferencesInEveryParameter) {
  constexpr double kScale = 0.125;
  kernels::reference::ReferenceDevice<double> device;
  SmallStage<double> model(Dims(), StageSlice::Whole(Dims()), {.micro_batch = 3}, device);
  const TokenBatch batch = RandomBatch(Dims(), 3);
  const double loss = model.ForwardBackward(batch, kScale);
  EXPECT_DOUBLE_EQ(loss, model.Loss(batch));
  ExpectCentralDifferences(model, kScale, [&] { return model.Loss(batch); });
}

TEST_P(ModelGradients, Float64AgreesWithCentralDifferencesUnderDropout) {
  kernels::reference::ReferenceDevice<double> device;
  SmallStage<double> model(Dims(), StageSlice::Whole(Dims()),
                           {.micro_batch = 3, .dropout = 0.2, .seed = 4}, device);
  const TokenBatch batch = RandomBatch(Dims(), 3);
  model.ForwardBackward(batch, 0.5);
  ExpectCentralDifferences(model, 0.5, [&] {
    model.stage.ForwardTokens(model.state, {.batch = 3, .dropout = 0.2}, batch.tokens);
    return model.stage.HeadLoss(model.state, batch.targets, 0);
  });
}

/// The allowed distance of a parameter's gradient from float64's, relative to its norm. Roundings
/// of activations add up over three blocks, each of 2^-24, 2^-8 and 2^-11.
template <class T>
constexpr double kGradientTolerance = std::is_same_v<T, float>               ? 1e-5
                                      : std::is_same_v<T, kernels::BFloat16> ? 0.2
                                                                             : 0.025;

template <class T>
void ExpectAgreesWithFloat64(const ModelDims& dims, double loss_tolerance) {
  const TokenBatch batch = RandomBatch(dims, 4);
  const double scale = 1.0 / static_cast<double>(batch.tokens.size());
  kernels::cpu::CpuDevice<T> device(1);
  SmallStage<T> model(dims, StageSlice::Whole(dims), {.micro_batch = 4}, device);
  kernels::reference::ReferenceDevice<double> oracle_device;
  SmallStage<double> oracle(dims, StageSlice::Whole(dims), {.micro_batch = 4}, oracle_device);
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    oracle.parameters.span()[i] = kernels::ToFloat(model.parameters.span()[i]);
  const double expected_loss = oracle.ForwardBackward(batch, scale);
  EXPECT_NEAR(expected_loss, model.ForwardBackward(batch, scale), loss_tolerance * expected_loss);
  const std::vector<double> expected = oracle.Gradients(), actual = model.Gradients();
  for (const ParameterRange& range : model.layout.ranges()) {
    double squares = 0, errors = 0;
    for (auto i = static_cast<std::size_t>(range.offset);
         i < static_cast<std::size_t>(range.offset + range.count); ++i) {
      squares += expected[i] * expected[i];
      errors += (expected[i] - actual[i]) * (expected[i] - actual[i]);
    }
    EXPECT_LE(std::sqrt(errors / squares), kGradientTolerance<T>) << range.name;
  }
}

TEST_P(ModelGradients, TheProcessorAgreesWithFloat64InEveryPrecision) {
  ModelDims dims = Dims();
  dims.layers = 3;
  dims.hidden = 48;
  dims.ffn = 0;
  dims.sequence = 33;
  dims.vocab = 61;
  ExpectAgreesWithFloat64<float>(dims, 1e-5);
  ExpectAgreesWithFloat64<kernels::BFloat16>(dims, 2e-2);
  ExpectAgreesWithFloat64<kernels::Float16>(dims, 2e-3);
}

TEST(LlamasRelatives, Float64AgreesWithCentralDifferencesInEveryParameter) {
  for (const bool wide : {false, true}) {
    const ModelDims dims = RelativeDims(wide);
    kernels::reference::ReferenceDevice<double> device;
    SmallStage<double> model(dims, StageSlice::Whole(dims), {.micro_batch = 3, .dropout = 0.2},
                             device);
    const TokenBatch batch = RandomBatch(dims, 3);
    model.ForwardBackward(batch, 0.5);
    ExpectCentralDifferences(model, 0.5, [&] {
      model.stage.ForwardTokens(model.state, {.batch = 3, .dropout = 0.2}, batch.tokens);
      return model.stage.HeadLoss(model.state, batch.targets, 0);
    });
  }
}

TEST(LlamasRelatives, TheProcessorAgreesWithFloat64InEveryPrecision) {
  for (const bool wide : {false, true}) {
    ModelDims dims = RelativeDims(wide);
    dims.hidden = 48;
    dims.head_size = wide ? 32 : 10;
    dims.ffn = 0;
    dims.sequence = 33;
    dims.vocab = 61;
    ExpectAgreesWithFloat64<float>(dims, 1e-5);
    ExpectAgreesWithFloat64<kernels::BFloat16>(dims, 2e-2);
    ExpectAgreesWithFloat64<kernels::Float16>(dims, 2e-3);
  }
}

/// Wider heads need wider buffers, also for recomputation.
TEST(LlamasRelatives, RecomputationChangesNothing) {
  const ModelDims dims = RelativeDims(true);
  const TokenBatch batch = RandomBatch(dims, 3);
  kernels::reference::ReferenceDevice<double> device;
  SmallStage<double> kept(dims, StageSlice::Whole(dims), {.micro_batch = 3}, device);
  kept.ForwardBackward(batch, 1);
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    SmallStage<double> again(dims, StageSlice::Whole(dims),
                             {.micro_batch = 3, .recompute = recompute}, device);
    again.ForwardBackward(batch, 1);
    EXPECT_EQ(kept.Gradients(), again.Gradients());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelGradients,
                         testing::Combine(testing::Values(ModelKind::kGpt2, ModelKind::kLlama,
                                                          ModelKind::kBert),
                                          testing::Bool()),
                         [](const auto& test) {
                           return NameOf(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "Tied" : "Untied");
                         });

}  // namespace
}  // namespace adaptive_train::model_gradients_test
