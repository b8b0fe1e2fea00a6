// Memory that all micro-batches and all chunks of a rank share, for data that does not outlive a
// layer's forward or backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/model_shape.h"
#include "kernels/buffer.h"
#include "runtime/model/micro_batch_state.h"

namespace adaptive_train {

// All buffers are in the device's memory. Row counts are those of a micro-batch; own rows are those
// that a rank has between the products (StageOptions::OwnRows).

/// For the blocks' backward passes, including recomputed activations.
template <class T>
struct BlockWorkspace {
  BlockWorkspace(const ModelDims& dims, const StageOptions& options, kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  kernels::Buffer<T>
      d_residual;  // [own rows, hidden]: gradient of the residual stream, passed down the blocks
  kernels::Buffer<T> d_narrow;  // [rows, AttentionColumns], or [own rows, hidden]
  kernels::Buffer<T> d_wide;    // [rows, max(QkvColumns, FfnColumns)]
  kernels::Buffer<T> d_gated;   // [rows, Ffn], gated only
  kernels::Buffer<T> qkv_part;  // [rows, QkvProductColumns], only where ranks share a head
  kernels::Buffer<T> branch;  // [own rows, hidden], only with dropout: a branch before or after it
  kernels::Buffer<T> whole;   // [rows, hidden], only where ranks share rows
  kernels::Buffer<kernels::Accumulator<T>> norm_gradients;  // [2 hidden], the same
  std::optional<KeptActivations<T>> kept;                   // with full recomputation
  std::optional<CheapActivations<T>> cheap;                 // with either
};

/// For the head's loss.
template <class T>
struct HeadWorkspace {
  HeadWorkspace(const ModelDims& dims, const StageOptions& options, kernels::DeviceMemory& memory);
  std::size_t bytes() const { return normal.bytes() + losses.bytes() + targets.bytes(); }

  kernels::Buffer<T> normal;                        // [rows, hidden]
  kernels::Buffer<kernels::Accumulator<T>> losses;  // [rows]
  kernels::Buffer<std::int32_t> targets;            // [rows]
};

/// The workspace of one rank. Not thread-safe.
template <class T>
struct StageWorkspace {
  /// Throws std::bad_alloc.
  StageWorkspace(const ModelDims& dims, bool has_head, const StageOptions& options,
                 kernels::DeviceMemory& memory);
  /// Bytes of device memory.
  std::size_t bytes() const { return block.bytes() + (head ? head->bytes() : 0); }

  BlockWorkspace<T> block;
  std::optional<HeadWorkspace<T>> head;
};

}  // namespace adaptive_train
