#include "runtime/measure/layer_magnitudes.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "kernels/host_memory.h"

namespace adaptive_train::layer_magnitudes_test {
namespace {

kernels::HostMemory host_memory;

constexpr ModelDims kSmall{.layers = 1, .heads = 2, .hidden = 16, .sequence = 8, .vocab = 20};

double Sum(std::span<const double> counts) {
  return std::accumulate(counts.begin(), counts.end(), 0.0);
}

/// The number of the layer's counted elements in the class of `value` and above.
double Above(const LayerMagnitudes& magnitudes, std::size_t layer, const ParameterLayout& layout,
             float value) {
  LayerMagnitudes probe(layout);
  const std::vector<float> all(static_cast<std::size_t>(layout.size()), value);
  probe.Take(host_memory, all, 0, all.size(), 1);
  probe.Count();
  std::size_t place = 0;
  while (probe.CountsOf(layer)[place] == 0) ++place;
  return Sum(magnitudes.CountsOf(layer).subspan(place));
}

TEST(LayerMagnitudes, CountsElementsBySizeWhateverTheirSign) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const LayerElements layer = LayersOf(layout)[1];
  std::vector<float> gradients(static_cast<std::size_t>(layout.size()));
  for (std::size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (i < layer.begin + 100 ? 4.0f : 0.001f);
  LayerMagnitudes magnitudes(layout);
  magnitudes.Take(host_memory, gradients, 0, gradients.size(), 1);
  magnitudes.Count();
  EXPECT_EQ(Sum(magnitudes.CountsOf(1)), static_cast<double>(layer.size()));
  EXPECT_EQ(Above(magnitudes, 1, layout, 4.0f), 100);
  EXPECT_EQ(Above(magnitudes, 1, layout, 0.002f), 100);
  EXPECT_EQ(Above(magnitudes, 1, layout, 0.001f), static_cast<double>(layer.size()));
  EXPECT_EQ(Above(magnitudes, 1, layout, 4.6f), 0);
}

TEST(LayerMagnitudes, SamplesOfLargeLayersStandForAllOfTheirElements) {
  const ModelDims large{.layers = 1, .heads = 2, .hidden = 128, .sequence = 8, .vocab = 2000};
  const ParameterLayout layout(large, StageSlice::Whole(large));
  const LayerElements layer = LayersOf(layout)[1];
  ASSERT_GT(layer.size(), 8 * LayerSamples::kMost);
  std::vector<float> gradients(static_cast<std::size_t>(layout.size()), 1.0f);
  for (std::size_t i = layer.begin; i < layer.end; ++i) gradients[i] = i % 10 == 0 ? 8.0f : 1.0f;
  LayerMagnitudes magnitudes(layout);
  magnitudes.Take(host_memory, gradients, 0, gradients.size(), 1);
  magnitudes.Count();
  const auto elements = static_cast<double>(layer.size());
  EXPECT_NEAR(Sum(magnitudes.CountsOf(1)), elements, 1e-6 * elements);
  EXPECT_NEAR(Above(magnitudes, 1, layout, 8.0f), 0.1 * elements, 0.01 * elements);
}

TEST(LayerMagnitudes, TensorRanksTogetherCountEachElementOfTheModelOnce) {
  const ModelDims dims{.layers = 1, .heads = 2, .hidden = 16, .sequence = 8, .vocab = 21};
  const StageSlice slice = StageSlice::Whole(dims);
  const ParameterLayout whole(dims, slice);
  std::vector<double> counted(3, 0.0);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const ParameterLayout layout(dims, std::span(&slice, 1), {rank, 2});
    LayerMagnitudes magnitudes(layout);
    const std::vector<float> ones(static_cast<std::size_t>(layout.size()), 1.0f);
    magnitudes.Take(host_memory, ones, 0, ones.size(), 1);
    magnitudes.Count();
    for (std::size_t layer = 0; layer < counted.size(); ++layer)
      counted[layer] += Sum(magnitudes.CountsOf(layer));
  }
  const auto layers = LayersOf(whole);
  for (std::size_t layer = 0; layer < counted.size(); ++layer)
    EXPECT_EQ(counted[layer], static_cast<double>(layers[layer].size())) << layer;
}

TEST(LayerMagnitudes, MicroBatchesAddUpAndADroppedStepLeavesNothing) {
  const ParameterLayout layout(kSmall, StageSlice::Whole(kSmall));
  const auto size = static_cast<std::size_t>(layout.size());
  LayerMagnitudes magnitudes(layout);
  const std::vector<float> infinite(size, std::numeric_limits<float>::infinity());
  magnitudes.Take(host_memory, infinite, 0, size, 1);
  magnitudes.Drop();
  const std::vector<float> ones(size, 1.0f);
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch)
    magnitudes.Take(host_memory, ones, 0, size, 2);
  magnitudes.Count();
  const auto elements = static_cast<double>(LayersOf(layout)[1].size());
  EXPECT_EQ(Sum(magnitudes.CountsOf(1)), elements);
  EXPECT_EQ(Above(magnitudes, 1, layout, 8.0f), elements);
  EXPECT_EQ(Above(magnitudes, 1, layout, 9.0f), 0);
}

}  // namespace
}  // namespace adaptive_train::layer_magnitudes_test
