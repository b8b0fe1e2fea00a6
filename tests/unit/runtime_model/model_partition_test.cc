// However a batch or a model is cut, losses and gradients do not change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train::model_partition_test {
namespace {

ModelDims Dims(bool tied) { return SmallDims(ModelKind::kGpt2, tied); }

constexpr ModelKind kKinds[] = {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert};

void ExpectNear(const std::vector<double>& expected, const std::vector<double>& actual,
                double tolerance) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(expected[i], actual[i], tolerance) << "at " << i;
}

TEST(ModelPartition, UnevenMicroBatchesAddUpToTheWholeBatch) {
  kernels::reference::ReferenceDevice<double> device;
  const TokenBatch batch = RandomBatch(Dims(true), 7);
  SmallStage<double> whole(Dims(true), StageSlice::Whole(Dims(true)), {.micro_batch = 7}, device);
  const double expected = whole.ForwardBackward(batch, 0.01);
  SmallStage<double> parts(Dims(true), StageSlice::Whole(Dims(true)), {.micro_batch = 4}, device);
  double loss = 0;
  loss += parts.ForwardBackward(batch.Part(0, 4), 0.01);
  loss += parts.ForwardBackward(batch.Part(4, 1), 0.01);
  loss += parts.ForwardBackward(batch.Part(5, 0), 0.01);
  loss += parts.ForwardBackward(batch.Part(5, 2), 0.01);
  EXPECT_NEAR(expected, loss, 1e-12 * expected);
  ExpectNear(whole.Gradients(), parts.Gradients(), 1e-13);
}

TEST(ModelPartition, ForwardAloneLeavesGradientsAlone) {
  kernels::reference::ReferenceDevice<double> device;
  SmallStage<double> model(Dims(false), StageSlice::Whole(Dims(false)), {.micro_batch = 2}, device);
  const TokenBatch batch = RandomBatch(Dims(false), 2);
  EXPECT_GT(model.Loss(batch), 0);
  EXPECT_EQ(std::vector<double>(model.gradients.size(), 0.0), model.Gradients());
  EXPECT_EQ(0, model.Loss(batch.Part(0, 0)));
}

TEST(ModelPartition, ParametersAreAskedForBeforeTheyAreRead) {
  kernels::reference::ReferenceDevice<double> device;
  for (const ModelKind kind : kKinds) {
    for (const bool tied : {true, false}) {
      const ModelDims dims = SmallDims(kind, tied);
      const TokenBatch batch = RandomBatch(dims, 2);
      SmallStage<double> model(dims, StageSlice::Whole(dims), {.micro_batch = 2}, device);
      const double expected = model.ForwardBackward(batch, 0.01);
      // As if all of them were still on their way.
      const std::vector<double> there(model.parameters.span().begin(),
                                      model.parameters.span().end());
      std::size_t next = 0;
      model.stage.BeforeReading([&](std::size_t begin, std::size_t end) {
        EXPECT_EQ(begin, next);
        next = end;
        for (std::size_t i = begin; i < end; ++i) model.parameters.span()[i] = there[i];
      });
      const auto gone = [&] {
        next = 0;
        std::fill(model.parameters.span().begin(), model.parameters.span().end(), NAN);
      };
      gone();
      EXPECT_EQ(model.ForwardBackward(batch, 0.01), expected);
      EXPECT_EQ(next, there.size());
      gone();
      EXPECT_TRUE(std::isfinite(model.Loss(batch)));
    }
  }
}

/// Adds a stage's gradients at their places in the whole model; a tied copy is added to its
/// original.
void AddGlobally(const SmallStage<double>& stage, std::vector<double>& global) {
  for (const ParameterRange& range : stage.layout.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      global[static_cast<std::size_t>(range.global_offset + i)] +=
          stage.gradients.span()[static_cast<std::size_t>(range.offset + i)];
    }
  }
}

class ModelStages : public testing::TestWithParam<std::tuple<ModelKind, bool, std::int64_t>> {};

TEST_P(ModelStages, TwoStagesComputeWhatOneDoes) {
  const auto [kind, tied, cut] = GetParam();
  const ModelDims dims = SmallDims(kind, tied);
  kernels::reference::ReferenceDevice<double> device;
  const TokenBatch batch = RandomBatch(dims, 2);
  SmallStage<double> whole(dims, StageSlice::Whole(dims), {.micro_batch = 2}, device);
  const double expected = whole.ForwardBackward(batch, 0.05);

  SmallStage<double> first(dims, {0, cut, true, false}, {.micro_batch = 2}, device),
      second(dims, {cut, 3, false, true}, {.micro_batch = 2}, device);
  const double* hidden = first.stage.ForwardTokens(first.state, {.batch = 2}, batch.tokens);
  second.stage.ForwardActivations(second.state, {.batch = 2}, hidden);
  const double loss = second.stage.HeadLoss(second.state, batch.targets, 0.05);
  first.stage.Backward(first.state, second.stage.Backward(second.state, nullptr));

  EXPECT_DOUBLE_EQ(expected, loss);
  std::vector<double> gradients(whole.gradients.size());
  AddGlobally(first, gradients);
  AddGlobally(second, gradients);
  ExpectNear(whole.Gradients(), gradients, 1e-14);
}

INSTANTIATE_TEST_SUITE_P(Cuts, ModelStages,
                         testing::Combine(testing::ValuesIn(kKinds), testing::Bool(),
                                          testing::Values(0, 1, 3)));

struct Ready {
  std::size_t begin, end;
};

std::vector<Ready> ReadyRanges(TransformerStage<double>& stage,
                               const std::vector<double>& gradients_after,
                               std::span<const double> gradients,
                               const std::function<void(const OnReady&)>& backward) {
  std::vector<Ready> ready;
  backward([&](std::size_t begin, std::size_t end) {
    ready.push_back({begin, end});
    for (std::size_t i = begin; i < end; ++i)
      EXPECT_EQ(gradients_after[i], gradients[i]) << "not final at " << i;
  });
  EXPECT_EQ(static_cast<std::size_t>(stage.layout().size()), ready.front().end);
  EXPECT_EQ(0U, ready.back().begin);
  for (std::size_t i = 1; i < ready.size(); ++i) EXPECT_EQ(ready[i - 1].begin, ready[i].end);
  for (const Ready& range : ready) EXPECT_LT(range.begin, range.end);
  return ready;
}

TEST(ModelReady, RangesCoverTheArenaOnceFromItsEndAndAreFinalWhenAnnounced) {
  for (const bool tied : {true, false}) {
    kernels::reference::ReferenceDevice<double> device;
    const TokenBatch batch = RandomBatch(Dims(tied), 2);
    SmallStage<double> model(Dims(tied), StageSlice::Whole(Dims(tied)), {.micro_batch = 2}, device);
    model.ForwardBackward(batch, 1);
    const std::vector<double> after = model.Gradients();
    model.gradients.Clear();
    const std::vector<Ready> ready =
        ReadyRanges(model.stage, after, model.gradients.span(),
                    [&](const OnReady& on_ready) { model.ForwardBackward(batch, 1, on_ready); });
    ASSERT_EQ(5U, ready.size()) << "head, three blocks, embedding";
    EXPECT_EQ(static_cast<std::size_t>(model.layout.Find("ln_f.weight")->offset), ready[0].begin);
    EXPECT_EQ(static_cast<std::size_t>(model.layout.Find("h.2.ln_1.weight")->offset),
              ready[1].begin);
  }
}

TEST(ModelReady, WhatTheEmbeddingAddsToASharedMatrixGoesWhereItIsTold) {
  for (const bool tied : {true, false}) {
    kernels::reference::ReferenceDevice<double> device;
    const TokenBatch batch = RandomBatch(Dims(tied), 2);
    const Samples samples{batch.tokens, batch.targets, batch.samples, {}};
    SmallStage<double> model(Dims(tied), StageSlice::Whole(Dims(tied)), {.micro_batch = 2}, device);
    model.stage.ForwardBackward(model.state, samples, 1);
    const std::vector<double> whole = model.Gradients();
    model.gradients.Clear();
    model.stage.ForwardBackward(model.state, samples, 1, {},
                                [](std::size_t, std::size_t) { return nullptr; });
    EXPECT_EQ(whole, model.Gradients());
    model.gradients.Clear();
    std::vector<double> of_head, of_embedding;
    const double* matrix = model.gradients.data();  // the first in the arena
    model.stage.ForwardBackward(model.state, samples, 1, {},
                                [&](std::size_t begin, std::size_t end) {
                                  EXPECT_EQ(0U, begin);
                                  of_head.assign(matrix, matrix + end);
                                  of_embedding.resize(end);
                                  return of_embedding.data();
                                });
    std::vector<double> both = model.Gradients();
    EXPECT_EQ(tied ? model.layout.Find("wte.weight")->count : 0,
              static_cast<std::int64_t>(of_head.size()));
    EXPECT_TRUE(std::ranges::equal(of_head, std::span(both).first(of_head.size())));
    for (std::size_t i = 0; i < of_head.size(); ++i) both[i] += of_embedding[i];
    for (std::size_t i = 0; i < both.size(); ++i) EXPECT_NEAR(whole[i], both[i], 1e-12) << i;
  }
}

TEST(ModelReady, StagesWithoutEndsOrBlocksCoverTheirArenasToo) {
  const ModelDims dims = Dims(true);
  kernels::reference::ReferenceDevice<double> device;
  const TokenBatch batch = RandomBatch(dims, 1);
  SmallStage<double> first(dims, {0, 0, true, false}, {.micro_batch = 1}, device),
      middle(dims, {0, 2, false, false}, {.micro_batch = 1}, device),
      last(dims, {2, 3, false, true}, {.micro_batch = 1}, device);
  const auto step = [&](const OnReady& a, const OnReady& b, const OnReady& c) {
    const Pass pass{.batch = 1};
    const double* hidden = first.stage.ForwardTokens(first.state, pass, batch.tokens);
    hidden = middle.stage.ForwardActivations(middle.state, pass, hidden);
    last.stage.ForwardActivations(last.state, pass, hidden);
    last.stage.HeadLoss(last.state, batch.targets, 1);
    const double* d_hidden = last.stage.Backward(last.state, nullptr, c);
    d_hidden = middle.stage.Backward(middle.state, d_hidden, b);
    first.stage.Backward(first.state, d_hidden, a);
  };
  step({}, {}, {});
  const std::vector<double> a = first.Gradients(), b = middle.Gradients(), c = last.Gradients();
  for (auto* stage : {&first, &middle, &last}) stage->gradients.Clear();
  EXPECT_EQ(1U, ReadyRanges(first.stage, a, first.gradients.span(), [&](const OnReady& f) {
                  step(f, {}, {});
                }).size());
  for (auto* stage : {&first, &middle, &last}) stage->gradients.Clear();
  EXPECT_EQ(2U, ReadyRanges(middle.stage, b, middle.gradients.span(), [&](const OnReady& f) {
                  step({}, f, {});
                }).size());
  for (auto* stage : {&first, &middle, &last}) stage->gradients.Clear();
  EXPECT_EQ(2U, ReadyRanges(last.stage, c, last.gradients.span(), [&](const OnReady& f) {
                  step({}, {}, f);
                }).size());
}

TEST(ModelPartition, TheProcessorGivesTheSameBitsAgainAndWithAnyNumberOfThreads) {
  const ModelDims dims{.layers = 2, .heads = 4, .hidden = 64, .sequence = 96, .vocab = 256};
  const TokenBatch batch = RandomBatch(dims, 4);
  kernels::cpu::CpuDevice<float> one(1);
  SmallStage<float> expected(dims, StageSlice::Whole(dims), {.micro_batch = 4}, one);
  const double expected_loss = expected.ForwardBackward(batch, 0.01);
  for (const int threads : {1, 2, 5}) {
    kernels::cpu::CpuDevice<float> device(threads);
    SmallStage<float> model(dims, StageSlice::Whole(dims), {.micro_batch = 4}, device);
    EXPECT_EQ(expected_loss, model.ForwardBackward(batch, 0.01)) << threads;
    EXPECT_EQ(expected.Gradients(), model.Gradients()) << threads;
  }
}

TEST(ModelMemory, AStageAllocatesWhatTheModelShapeSays) {
  std::vector<ModelDims> models{RelativeDims(false), RelativeDims(true)};
  for (const ModelKind kind : kKinds) models.push_back(SmallDims(kind, false));
  for (const ModelDims& dims : models) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const double dropout : {0.0, 0.1}) {
        kernels::cpu::CpuDevice<kernels::BFloat16> device(1);
        SmallStage<kernels::BFloat16> model(
            dims, StageSlice::Whole(dims),
            {.micro_batch = 3, .recompute = recompute, .dropout = dropout}, device);
        const ModelShape shape = ModelShape::Of(dims, {Precision::kBf16, recompute, dropout > 0});
        EXPECT_EQ(static_cast<std::size_t>(3 * shape.total.activation_bytes_per_sample),
                  model.ActivationBytes())
            << NameOf(dims.kind) << " " << static_cast<int>(recompute) << " " << dropout;
        EXPECT_EQ(shape.total.parameters, model.layout.size());
      }
    }
  }
}

template <class T>
void ExpectRecomputationGivesTheSameBits() {
  for (const ModelKind kind : kKinds) {
    for (const double dropout : {0.0, 0.25}) {
      const ModelDims dims = SmallDims(kind);
      const TokenBatch batch = RandomBatch(dims, 3);
      std::vector<double> expected;
      std::size_t bytes = 0;
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        kernels::cpu::CpuDevice<T> device(1);
        SmallStage<T> model(
            dims, StageSlice::Whole(dims),
            {.micro_batch = 3, .recompute = recompute, .dropout = dropout, .seed = 5}, device);
        model.ForwardBackward(batch, 0.1, {}, {.step = 7, .first_sample = 2});
        if (expected.empty()) {
          expected = model.Gradients();
        } else {
          EXPECT_EQ(expected, model.Gradients())
              << NameOf(kind) << " " << static_cast<int>(recompute);
          EXPECT_LT(model.ActivationBytes(), bytes);
        }
        bytes = model.ActivationBytes();
      }
    }
  }
}

TEST(ModelRecompute, GivesTheSameBitsInLessMemory) {
  ExpectRecomputationGivesTheSameBits<float>();
  ExpectRecomputationGivesTheSameBits<kernels::BFloat16>();
  ExpectRecomputationGivesTheSameBits<kernels::Float16>();
}

TEST(ModelDropout, FollowsTheSampleAndNotTheMicroBatch) {
  const ModelDims dims = SmallDims(ModelKind::kGpt2);
  const StageOptions options{.micro_batch = 4, .dropout = 0.3, .seed = 9};
  const TokenBatch batch = RandomBatch(dims, 4);
  kernels::reference::ReferenceDevice<double> device;
  SmallStage<double> whole(dims, StageSlice::Whole(dims), options, device),
      parts(dims, StageSlice::Whole(dims), options, device),
      plain(dims, StageSlice::Whole(dims), {.micro_batch = 4}, device);
  const double expected = whole.ForwardBackward(batch, 0.1, {}, {.step = 3, .first_sample = 10});
  const double loss =
      parts.ForwardBackward(batch.Part(0, 1), 0.1, {}, {.step = 3, .first_sample = 10}) +
      parts.ForwardBackward(batch.Part(1, 3), 0.1, {}, {.step = 3, .first_sample = 11});
  EXPECT_NEAR(expected, loss, 1e-12 * expected);
  ExpectNear(whole.Gradients(), parts.Gradients(), 1e-13);
  EXPECT_DOUBLE_EQ(plain.Loss(batch), whole.Loss(batch)) << "validation knows no dropout";
  EXPECT_NE(expected, plain.ForwardBackward(batch, 0.1));
  EXPECT_NE(expected, whole.ForwardBackward(batch, 0.1, {}, {.step = 4, .first_sample = 10}));
}

}  // namespace
}  // namespace adaptive_train::model_partition_test
