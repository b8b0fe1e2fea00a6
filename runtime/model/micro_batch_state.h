// What the forward pass of one micro-batch keeps for its backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/model_shape.h"
#include "kernels/buffer.h"
#include "kernels/scalar.h"
#include "runtime/model/layer_clock.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/model/pass.h"

namespace adaptive_train {

// All buffers are in the device's memory. Row counts are those of a micro-batch; own rows are those
// that a rank has between the products (StageOptions::OwnRows).

/// The statistics of one norm.
template <class T>
struct NormStatistics {
  NormStatistics(const ModelDims& dims, std::int64_t rows, kernels::DeviceMemory& memory);
  std::size_t bytes() const { return mean.bytes() + reciprocal_std.bytes(); }

  kernels::Buffer<kernels::Accumulator<T>> mean;            // [rows]; unused by an RMS norm
  kernels::Buffer<kernels::Accumulator<T>> reciprocal_std;  // [rows]
};

/// Activations for backward that are expensive to recompute.
template <class T>
struct KeptActivations {
  KeptActivations(const ModelDims& dims, const StageOptions& options,
                  kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  kernels::Buffer<T> qkv;                                // [rows, QkvColumns]
  kernels::Buffer<T> attention;                          // [rows, AttentionColumns]
  kernels::Buffer<kernels::Accumulator<T>> log_sum_exp;  // [rows, heads]
  kernels::Buffer<T> mid;  // [own rows, hidden]: the residual sum after attention
  kernels::Buffer<T> fc;   // [rows, FfnColumns]
  kernels::Buffer<T> sum;  // [own rows, hidden], post-norm: the second residual sum
};

/// Activations that are cheap to recompute: outputs of norms and of the activation function.
template <class T>
struct CheapActivations {
  CheapActivations(const ModelDims& dims, const StageOptions& options,
                   kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  kernels::Buffer<T> norm_1, norm_2;  // [own rows, hidden]; the second with pre-norm only
  kernels::Buffer<T> activated;       // [rows, Ffn]
};

template <class T>
struct BlockState {
  BlockState(const ModelDims& dims, const StageOptions& options, kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  NormStatistics<T> ln_1, ln_2;
  std::optional<KeptActivations<T>> kept;    // not with full recomputation
  std::optional<CheapActivations<T>> cheap;  // only without recomputation
  kernels::Buffer<T> output;                 // [own rows, hidden]
};

template <class T>
struct EmbeddingState {
  EmbeddingState(const ModelDims& dims, const StageOptions& options, kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  kernels::Buffer<std::int32_t> tokens;   // [rows]
  std::optional<NormStatistics<T>> norm;  // BERT
  kernels::Buffer<T> sum;                 // [rows, hidden], only with the norm
  kernels::Buffer<T> output;              // [own rows, hidden]
};

template <class T>
struct HeadState {
  HeadState(const ModelDims& dims, const StageOptions& options, kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  NormStatistics<T> norm;
  kernels::Buffer<T> dense_output, activated;  // [rows, hidden], BERT
  kernels::Buffer<T> d_normal;                 // [rows, hidden]: gradient of the norm's output
};

/// The state of one micro-batch in flight through one stage, or one chunk of it. Forward fills it
/// and Backward of the same pass reads it; then it may serve another micro-batch. Not thread-safe.
template <class T>
struct MicroBatchState {
  /// Throws std::bad_alloc.
  MicroBatchState(const ModelDims& dims, const StageSlice& slice, const StageOptions& options,
                  kernels::DeviceMemory& memory);
  /// Bytes of device memory.
  std::size_t bytes() const;

  /// The residual stream before block number `index` of the stage, or after the last: own rows of
  /// [batch, sequence, hidden].
  const T* BlockInput(std::size_t index) const;
  /// The output for the next stage. Without the head, no backward reads it. Once the next stage has
  /// it, the returned gradient may overwrite it.
  T* output();
  const T* output() const { return BlockInput(blocks.size()); }

  Pass pass;                   // of the last forward
  PassTimes* times = nullptr;  // the caller's; passes add their layers' seconds; nullptr: off
  std::optional<EmbeddingState<T>> embedding;
  kernels::Buffer<T> input;  // [own rows, hidden]: input of the first block, without the embedding
  std::vector<BlockState<T>> blocks;
  std::optional<HeadState<T>> head;
};

}  // namespace adaptive_train
