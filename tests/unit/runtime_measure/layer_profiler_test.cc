// From micro-batches to a layer's entry: medians, the first step, skipped steps, sizes kept apart.
#include "runtime/measure/layer_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/host_memory.h"

namespace adaptive_train::layer_profiler_test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::Gt;
using testing::SizeIs;

kernels::HostMemory host_memory;

constexpr ModelDims kDims{.layers = 4, .heads = 2, .hidden = 16, .sequence = 8, .vocab = 20};

struct LayerProfilerTest : testing::Test {
  /// One measured step with one micro-batch of each size. A block takes `block_s` forward, twice
  /// that backward.
  std::optional<LayerTimes> Step(const std::vector<std::int64_t>& sizes, double block_s,
                                 bool skipped = false) {
    for (std::int64_t size : sizes) {
      PassTimes* times = profiler.NextMicroBatch(size);
      const double all = kDims.layers * block_s * static_cast<double>(size);
      times->forward = {0.1, all, 0.3};
      times->backward = {0.2, 2 * all, 0.6};
      times->weight_gradients = {0, 0.75 * all, 0};
    }
    std::vector<float> gradients(static_cast<std::size_t>(layout.size()), 1 + value);
    value = 1 - value;
    profiler.TakeGradients(host_memory, gradients, 0, gradients.size(), 1);
    profiler.AddUpdate(0.5);
    profiler.AddUpdate(0.5);
    return profiler.EndStep(skipped);
  }
  static const LayerMeasurement& Find(const LayerTimes& times, const std::string& layer,
                                      std::int64_t micro_batch) {
    for (const LayerMeasurement& entry : times.entries) {
      if (entry.layer == layer && entry.micro_batch == micro_batch) return entry;
    }
    throw std::runtime_error("no entry of " + layer);
  }

  ParameterLayout layout{kDims, StageSlice::Whole(kDims)};
  LayerProfiler profiler{layout, kDims};
  float value = 0;
};

TEST_F(LayerProfilerTest, DropsTheFirstStepAndTakesMedians) {
  profiler.Begin(4);
  EXPECT_FALSE(Step({2}, 100));
  EXPECT_FALSE(Step({2}, 1));
  EXPECT_FALSE(Step({2}, 3));
  EXPECT_TRUE(profiler.Active());
  const auto found = Step({2}, 50);
  ASSERT_TRUE(found);
  EXPECT_FALSE(profiler.Active());
  ASSERT_THAT(found->entries, SizeIs(3));
  const LayerMeasurement& block = Find(*found, "block", 2);
  EXPECT_DOUBLE_EQ(block.forward_s, 6);
  EXPECT_DOUBLE_EQ(block.backward_s, 12);
  EXPECT_DOUBLE_EQ(block.weight_gradients_s, 4.5);
  EXPECT_EQ(block.evidence.count, 3);
  EXPECT_GT(block.evidence.spread, 1);
  EXPECT_DOUBLE_EQ(Find(*found, "embedding", 2).backward_s, 0.2);
  EXPECT_DOUBLE_EQ(Find(*found, "head", 2).forward_s, 0.3);
  EXPECT_EQ(Find(*found, "head", 2).evidence.spread, 0);
}

TEST_F(LayerProfilerTest, AnOnlyStepCounts) {
  profiler.Begin(1);
  const auto found = Step({2}, 7);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(Find(*found, "block", 2).forward_s, 14);
}

TEST_F(LayerProfilerTest, KeepsMicroBatchesOfDifferentSizesApart) {
  profiler.Begin(2);
  Step({3, 3, 1}, 9);
  const auto found = Step({3, 3, 1}, 1);
  ASSERT_TRUE(found);
  ASSERT_THAT(found->entries, SizeIs(6));
  EXPECT_DOUBLE_EQ(Find(*found, "block", 3).forward_s, 3);
  EXPECT_EQ(Find(*found, "block", 3).evidence.count, 2);
  EXPECT_DOUBLE_EQ(Find(*found, "block", 1).forward_s, 1);
  EXPECT_EQ(Find(*found, "block", 1).evidence.count, 1);
}

TEST_F(LayerProfilerTest, ASkippedStepIsMadeUpFor) {
  profiler.Begin(2);
  Step({2}, 9);
  EXPECT_FALSE(Step({2}, 1000, true));
  const auto found = Step({2}, 1);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(Find(*found, "block", 2).forward_s, 2);
  EXPECT_EQ(Find(*found, "block", 2).evidence.count, 1);
}

TEST_F(LayerProfilerTest, TheUpdateIsSharedOutByParameters) {
  profiler.Begin(1);
  const auto found = Step({2}, 1);
  ASSERT_TRUE(found);
  const double all = Find(*found, "embedding", 2).update_s +
                     static_cast<double>(kDims.layers) * Find(*found, "block", 2).update_s +
                     Find(*found, "head", 2).update_s;
  EXPECT_THAT(all, DoubleNear(1, 1e-12));
  EXPECT_GT(Find(*found, "block", 2).update_s, Find(*found, "head", 2).update_s);
}

TEST_F(LayerProfilerTest, TellsTheVarianceOfEachLayer) {
  profiler.Begin(2);
  Step({2}, 1);
  const auto found = Step({2}, 1);
  ASSERT_TRUE(found);
  // 1 in one step and 2 in the other: variance 0.25, mean square 2.5.
  EXPECT_THAT(found->variances, SizeIs(6));
  EXPECT_THAT(found->variances, Each(DoubleNear(0.1, 1e-12)));
  EXPECT_THAT(Find(*found, "block", 2).gradient_variance, DoubleNear(0.1, 1e-12));
}

TEST_F(LayerProfilerTest, BeginsAnewWhenAskedAgain) {
  EXPECT_FALSE(profiler.Active());
  profiler.Begin(1);
  Step({2}, 1);
  profiler.Begin(2);
  Step({2}, 5);
  const auto found = Step({2}, 4);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(Find(*found, "block", 2).forward_s, 8);
  profiler.Begin(0);
  EXPECT_FALSE(profiler.Active());
}

/// Otherwise 0 s of what a stage lacks would count as measured.
TEST(LayerProfilerOfAStage, TellsNothingOfWhatTheStageLacks) {
  const auto layers_of = [](const StageSlice& slice) {
    const ParameterLayout layout(kDims, slice);
    LayerProfiler profiler(layout, kDims);
    profiler.Begin(1);
    profiler.NextMicroBatch(2)->forward = {0.1, 0.2, 0.3};
    const std::vector<float> gradients(static_cast<std::size_t>(layout.size()), 1);
    profiler.TakeGradients(host_memory, gradients, 0, gradients.size(), 1);
    std::vector<std::string> names;
    const auto found = profiler.EndStep(false);
    for (const LayerMeasurement& entry : found->entries) names.push_back(entry.layer);
    EXPECT_EQ(found->variances.size(), static_cast<std::size_t>(kDims.layers + 2));
    for (std::int64_t block = 0; block < kDims.layers; ++block)
      EXPECT_EQ(found->variances[static_cast<std::size_t>(1 + block)] >= 0,
                slice.Holds(LayerPart::kBlock, block));
    EXPECT_EQ(found->variances.front() >= 0, slice.has_embedding);
    EXPECT_EQ(found->variances.back() >= 0, slice.has_head);
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(layers_of({0, 2, true, false}), ElementsAre("embedding", "block"));
  EXPECT_THAT(layers_of({2, 3, false, false}), ElementsAre("block"));
  EXPECT_THAT(layers_of({3, 4, false, true}), ElementsAre("block", "head"));
  EXPECT_THAT(layers_of({4, 4, false, true}), ElementsAre("head"));
}

}  // namespace
}  // namespace adaptive_train::layer_profiler_test
