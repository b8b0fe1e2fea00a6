// A small model with its arenas and a batch of tokens, on any device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/counter_random.h"
#include "kernels/buffer.h"
#include "runtime/model/transformer_stage.h"

namespace adaptive_train {

struct TokenBatch {
  std::int64_t samples = 0;
  std::int64_t sequence = 0;
  std::vector<std::int32_t> tokens, targets;

  /// Samples [first, first + count).
  TokenBatch Part(std::int64_t first, std::int64_t count) const {
    const auto cut = [&](const std::vector<std::int32_t>& all) {
      return std::vector<std::int32_t>(all.begin() + first * sequence,
                                       all.begin() + (first + count) * sequence);
    };
    return {count, sequence, cut(tokens), cut(targets)};
  }
};

/// The models of the tests: every kind, one of them with grouped heads and a separate head matrix.
inline ModelDims SmallDims(ModelKind kind, bool tied = true) {
  return {.layers = 3,
          .heads = 4,
          .hidden = 8,
          .sequence = 6,
          .vocab = 11,
          .tie_embeddings = tied,
          .kind = kind,
          .kv_heads = kind == ModelKind::kLlama ? 2 : 0,
          .ffn = kind == ModelKind::kLlama ? 10 : 0};
}

/// The settings that only Llama's relatives have, with heads that together are wider or narrower
/// than the residual stream.
inline ModelDims RelativeDims(bool wide) {
  ModelDims dims = SmallDims(ModelKind::kLlama, false);
  dims.layers = 2;
  dims.heads = wide ? 4 : 2;
  dims.kv_heads = wide ? 2 : 1;
  dims.head_size = wide ? 4 : 2;
  dims.attention_bias = wide ? AttentionBias::kAll : AttentionBias::kQkv;
  dims.norm_epsilon = 1e-2;
  dims.rope_base = 50;
  dims.rope_scaling = {
      .factor = 4, .low_freq_factor = 0.5, .high_freq_factor = 2, .original_sequence = 8};
  return dims;
}

inline std::string NameOf(ModelKind kind) {
  return kind == ModelKind::kGpt2 ? "Gpt2" : kind == ModelKind::kLlama ? "Llama" : "Bert";
}

/// A model that predicts masked tokens has targets in some places only.
inline TokenBatch RandomBatch(const ModelDims& dims, std::int64_t samples) {
  const CounterRandom random(11, RandomPurpose::kSampleOrder);
  TokenBatch batch{samples, dims.sequence, {}, {}};
  for (std::uint32_t i = 0; i < samples * dims.sequence; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(random.Bits({.element = i}) % dims.vocab));
    const auto target =
        static_cast<std::int32_t>(random.Bits({.step = 1, .element = i}) % dims.vocab);
    batch.targets.push_back(Architecture::Of(dims.kind).causal || i % 3 == 0 ? target : -1);
  }
  return batch;
}

/// Where element `i` of a rank's part of a parameter is in the arena of the whole model.
inline std::int64_t GlobalPlace(const ParameterRange& range, std::int64_t i) {
  const std::int64_t width = range.shape.back();
  std::int64_t column = i % width;
  for (const ElementRange& columns : range.columns) {
    if (column < columns.size())
      return range.global_offset + (range.rows.begin + i / width) * range.whole_columns +
             columns.begin + column;
    column -= columns.size();
  }
  return -1;
}

/// A stage with its own arenas, workspace and one micro-batch's state. Parameters are larger than a
/// new model's, so that every path of the gradient counts. They are normals of 0.3 instead of 0.02,
/// with norms and biases away from 1 and 0.
template <class T>
struct SmallStage {
  using Sum = kernels::Accumulator<T>;

  SmallStage(const ModelDims& dims, const StageSlice& slice, const StageOptions& options,
             kernels::Device<T>& device, const TensorRanks<T>& tensor = {})
      : layout(dims, std::span(&slice, 1), tensor.part),
        parameters(device, static_cast<std::size_t>(layout.size())),
        gradients(device, static_cast<std::size_t>(layout.size())),
        workspace(PartOf(dims, tensor.part), slice.has_head, options, device),
        stage(PartOf(dims, tensor.part), slice, options, device,
              {layout, parameters.span(), gradients.span()}, workspace, tensor),
        state(stage.NewState()) {
    const CounterRandom random(3, RandomPurpose::kInitialization);
    for (const ParameterRange& range : layout.ranges()) {
      const double center = range.initial == InitialValue::kOnes ? 1 : 0;
      for (std::int64_t i = 0; i < range.count; ++i) {
        const auto element = static_cast<std::uint64_t>(GlobalPlace(range, i));
        parameters.span()[static_cast<std::size_t>(range.offset + i)] =
            kernels::Rounded<T>(static_cast<Sum>(
                static_cast<float>(center + 0.3 * random.Normal({.element = element}))));
      }
    }
    gradients.Clear();
  }

  double ForwardBackward(const TokenBatch& batch, double loss_scale, const OnReady& on_ready = {},
                         const SamplePlace& place = {}) {
    return stage.ForwardBackward(state, {batch.tokens, batch.targets, batch.samples, place},
                                 loss_scale, on_ready);
  }
  double Loss(const TokenBatch& batch) {
    return stage.Loss(state, {batch.tokens, batch.targets, batch.samples, {}});
  }
  std::size_t ActivationBytes() const { return workspace.bytes() + state.bytes(); }
  std::vector<double> Gradients() const {
    return {gradients.span().begin(), gradients.span().end()};
  }

  ParameterLayout layout;
  kernels::Buffer<T> parameters;
  kernels::Buffer<Sum> gradients;
  StageWorkspace<T> workspace;
  TransformerStage<T> stage;
  MicroBatchState<T> state;
};

}  // namespace adaptive_train
