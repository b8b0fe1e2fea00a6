// Gradient variance against the paper's equation (2), written out.
#include "runtime/measure/layer_variance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/counter_random.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/host_memory.h"
#include "tests/fakes/guarded_device.h"

namespace adaptive_train::layer_variance_test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::SizeIs;

kernels::HostMemory host_memory;

constexpr ModelDims kSmall{.layers = 3, .heads = 2, .hidden = 16, .sequence = 8, .vocab = 20};

/// sigma^2 over the mean of ||g||^2, elements [begin, end), over the steps.
double Equation2(const std::vector<std::vector<float>>& steps, std::size_t begin, std::size_t end) {
  const auto n = static_cast<double>(steps.size());
  double variance = 0, square = 0;
  for (std::size_t i = begin; i < end; ++i) {
    double mean = 0;
    for (const auto& g : steps) mean += g[i] / n;
    for (const auto& g : steps) {
      variance += (g[i] - mean) * (g[i] - mean) / n;
      square += static_cast<double>(g[i]) * g[i] / n;
    }
  }
  return variance / square;
}

/// A gradient of `signal` everywhere plus `noise` times a normal variable of the step.
std::vector<float> Gradient(std::size_t size, std::uint32_t step, double signal, double noise) {
  const CounterRandom random(5, RandomPurpose::kInitialization);
  std::vector<float> g(size);
  for (std::size_t i = 0; i < size; ++i)
    g[i] = static_cast<float>(signal + noise * random.Normal({.step = step, .element = i}));
  return g;
}

TEST(LayersOf, CutsTheArenaWithoutGaps) {
  for (bool tied : {true, false}) {
    ModelDims dims = kSmall;
    dims.tie_embeddings = tied;
    const ParameterLayout layout(dims, StageSlice::Whole(dims));
    const auto layers = LayersOf(layout);
    ASSERT_THAT(layers, SizeIs(5));
    std::size_t end = 0;
    for (const LayerElements& layer : layers) {
      EXPECT_EQ(layer.begin, end);
      EXPECT_GT(layer.size(), 0u);
      end = layer.end;
    }
    EXPECT_EQ(end, static_cast<std::size_t>(layout.size()));
    EXPECT_EQ(layers[1].begin, static_cast<std::size_t>(layout.OffsetOf("h.0.ln_1.weight")));
    EXPECT_EQ(layers[4].begin, static_cast<std::size_t>(layout.OffsetOf("ln_f.weight")));
    EXPECT_EQ(layers[1].size(), layers[3].size());
  }
}

TEST(LayersOf, AStageHasWhatItHolds) {
  const auto middle = LayersOf(ParameterLayout(kSmall, {1, 3, false, false}));
  ASSERT_THAT(middle, SizeIs(4));
  EXPECT_EQ(middle[0].size(), 0u);
  EXPECT_EQ(middle[1].size(), middle[2].size());
  EXPECT_EQ(middle[3].size(), 0u);
}

/// As the gradients of a GPU are.
TEST(LayerVariance, TakesGradientsThatTheHostCannotTouch) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const auto size = static_cast<std::size_t>(layout.size());
  kernels::cpu::CpuDevice<float> cpu(1);
  kernels::GuardedDevice<float> device(cpu);
  kernels::Buffer<float> gradients(device, size);
  LayerVariance here(layout), there(layout);
  for (std::uint32_t step = 0; step < 3; ++step) {
    const std::vector<float> gradient = Gradient(size, step, 0.5, 1);
    gradients.CopyFromHost(gradient);
    here.Take(host_memory, gradient, 0, size, 1);
    there.Take(device, gradients.span(), 0, size, 1);
    here.Count();
    there.Count();
  }
  EXPECT_THAT(there.Relative(), Each(testing::Gt(0.1)));
  EXPECT_EQ(there.Relative(), here.Relative());
}

void TakeWhole(LayerVariance& variance, const std::vector<float>& gradient) {
  variance.Take(host_memory, gradient, 0, gradient.size(), 1);
}

TEST(LayerVariance, IsEquation2WhereEveryElementIsLookedAt) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const auto layers = LayersOf(layout);
  LayerVariance variance(layout);
  std::vector<std::vector<float>> steps;
  for (std::uint32_t step = 0; step < 4; ++step) {
    steps.push_back(Gradient(static_cast<std::size_t>(layout.size()), step, 0.5, 1));
    TakeWhole(variance, steps.back());
    variance.Count();
  }
  const auto relative = variance.Relative(), literal = variance.Literal();
  ASSERT_THAT(relative, SizeIs(layers.size()));
  ASSERT_THAT(literal, SizeIs(layers.size()));
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    ASSERT_LE(layers[layer].size(), LayerSamples::kMost);
    const double expected = Equation2(steps, layers[layer].begin, layers[layer].end);
    EXPECT_THAT(relative[layer], DoubleNear(expected, 1e-6));
    double squares = 0;  // the layer's, mean over steps
    for (const auto& step : steps) {
      for (std::size_t i = layers[layer].begin; i < layers[layer].end; ++i)
        squares += static_cast<double>(step[i]) * static_cast<double>(step[i]) / 4;
    }
    EXPECT_THAT(literal[layer], DoubleNear(expected * squares, 1e-6 * squares));
  }
}

TEST(LayerVariance, SamplesOfLargeLayersComeClose) {
  const ModelDims large{.layers = 1, .heads = 2, .hidden = 128, .sequence = 8, .vocab = 2000};
  const ParameterLayout layout(large, StageSlice::Whole(large));
  const auto layers = LayersOf(layout);
  ASSERT_GT(layers[1].size(), 8 * LayerSamples::kMost);
  LayerVariance variance(layout);
  std::vector<std::vector<float>> steps;
  for (std::uint32_t step = 0; step < 3; ++step) {
    steps.push_back(Gradient(static_cast<std::size_t>(layout.size()), step, 0.7, 1));
    TakeWhole(variance, steps.back());
    variance.Count();
  }
  const double exact = Equation2(steps, layers[1].begin, layers[1].end);
  EXPECT_THAT(variance.Relative()[1], DoubleNear(exact, 0.02 * exact));
}

TEST(LayerVariance, SameGradientsHaveNoneAndScaleDoesNotMatter) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const auto g = Gradient(static_cast<std::size_t>(layout.size()), 1, 0, 1);
  LayerVariance same(layout), scaled(layout);
  for (int step = 0; step < 3; ++step) {
    TakeWhole(same, g);
    same.Count();
    // Loss scales differ from step to step, and are divided out again.
    std::vector<float> larger = g;
    const float scale = static_cast<float>(1 << (4 * step));
    for (float& value : larger) value *= scale;
    scaled.Take(host_memory, larger, 0, larger.size(), 1 / scale);
    scaled.Count();
  }
  EXPECT_THAT(same.Relative(), Each(DoubleNear(0, 1e-12)));
  EXPECT_THAT(scaled.Relative(), Each(DoubleNear(0, 1e-12)));
}

TEST(LayerVariance, OneStepOrNoGradientIsNoVariance) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const auto size = static_cast<std::size_t>(layout.size());
  LayerVariance one(layout), none(layout);
  TakeWhole(one, Gradient(size, 1, 0, 1));
  one.Count();
  EXPECT_THAT(one.Relative(), Each(0));
  for (int step = 0; step < 2; ++step) {
    TakeWhole(none, std::vector<float>(size));
    none.Count();
  }
  EXPECT_THAT(none.Relative(), Each(0));
}

TEST(LayerVariance, APartAtATimeIsTheWholeAndMicroBatchesAddUp) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const auto size = static_cast<std::size_t>(layout.size());
  LayerVariance whole(layout), parts(layout), halves(layout);
  for (std::uint32_t step = 0; step < 3; ++step) {
    const auto g = Gradient(size, step, 1, 1);
    TakeWhole(whole, g);
    whole.Count();
    for (std::size_t end = size; end > 0; end -= std::min<std::size_t>(end, 37))
      parts.Take(host_memory, g, end - std::min<std::size_t>(end, 37), end, 1);
    parts.Count();
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
      halves.Take(host_memory, g, 0, size, 0.5);
    halves.Count();
  }
  EXPECT_EQ(parts.Relative(), whole.Relative());
  EXPECT_EQ(halves.Relative(), whole.Relative());
}

TEST(LayerVariance, AStepThatIsNotCountedLeavesNothing) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const auto size = static_cast<std::size_t>(layout.size());
  LayerVariance variance(layout), without(layout);
  for (std::uint32_t step = 0; step < 3; ++step) {
    TakeWhole(without, Gradient(size, step, 1, 1));
    without.Count();
    TakeWhole(variance, std::vector<float>(size, std::numeric_limits<float>::infinity()));
    variance.Drop();
    TakeWhole(variance, Gradient(size, step, 1, 1));
    variance.Count();
  }
  EXPECT_EQ(variance.Relative(), without.Relative());
}

}  // namespace
}  // namespace adaptive_train::layer_variance_test
