// One Transformer block with its activations, its gradients written out by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/counter_random.h"
#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/layers.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// How a stage is trained, beyond the model itself.
struct StageOptions {
  std::int64_t micro_batch = 1;  // samples, at most
  Recompute recompute = Recompute::kNone;
  double dropout = 0;      // probability, of the embedding's and each branch's output
  std::uint64_t seed = 0;  // of dropout
};

/// Which samples of which step are computed: what dropout depends on.
struct SamplePlace {
  std::uint32_t step = 0;
  std::uint32_t first_sample = 0;  // of the step's global batch
};

/// One pass over one micro-batch. `dropout` is 0 outside of training.
struct Pass {
  std::int64_t batch = 0;
  SamplePlace place;
  double dropout = 0;
};

/// Activations that backward needs and that are dear to compute again. Row counts are those of a
/// micro-batch.
template <class T>
struct KeptActivations {
  KeptActivations(const ModelDims& dims, std::int64_t rows, kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  kernels::Buffer<T> qkv;                                // [rows, QkvColumns]
  kernels::Buffer<T> attention;                          // [rows, AttentionColumns]
  kernels::Buffer<kernels::Accumulator<T>> log_sum_exp;  // [rows, heads]
  kernels::Buffer<T> mid;  // [rows, hidden]: the residual sum after attention
  kernels::Buffer<T> fc;   // [rows, FfnColumns]
  kernels::Buffer<T> sum;  // [rows, hidden], post-norm: the second residual sum
};

/// Those that are cheap: outputs of norms and of the activation function.
template <class T>
struct CheapActivations {
  CheapActivations(const ModelDims& dims, std::int64_t rows, kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  kernels::Buffer<T> norm_1, norm_2;  // [rows, hidden]; the second with pre-norm only
  kernels::Buffer<T> activated;       // [rows, Ffn]
};

/// Memory that all blocks share: of their backward passes, and the activations that are computed
/// again.
template <class T>
struct BlockWorkspace {
  BlockWorkspace(const ModelDims& dims, const StageOptions& options, kernels::DeviceMemory& memory);
  std::size_t bytes() const;

  kernels::Buffer<T>
      d_residual;  // [rows, hidden]: gradient of the residual stream, goes down the blocks
  kernels::Buffer<T> d_narrow;  // [rows, max(hidden, AttentionColumns)]
  kernels::Buffer<T> d_wide;    // [rows, max(QkvColumns, FfnColumns)]
  kernels::Buffer<T> d_gated;   // [rows, Ffn], gated only
  kernels::Buffer<T> branch;    // [rows, hidden], with dropout only: a branch before or behind it
  std::optional<KeptActivations<T>> kept;    // with full recomputation
  std::optional<CheapActivations<T>> cheap;  // with either
};

/// Pre-norm:
///   mid    = input + attn.c_proj(attention(attn.c_attn(ln_1(input))))
///   output = mid   + mlp.c_proj(activation(mlp.c_fc(ln_2(mid))))
/// Post-norm (BERT):
///   x      = ln_1(input + attn.c_proj(attention(attn.c_attn(input))))
///   output = ln_2(x     + mlp.c_proj(activation(mlp.c_fc(x))))
/// with rotary positions inside of attention, and dropout on what is added to the residual. Owns or
/// borrows what backward needs of one forward. Pointers are to the device's memory. Not
/// thread-safe.
template <class T>
class TransformerBlock {
 public:
  /// Block number `block` of the model, whose parameters stand in `layout`.
  TransformerBlock(const ModelDims& dims, const ParameterLayout& layout, std::int64_t block,
                   const StageOptions& options, kernels::DeviceMemory& memory);

  /// input is [batch, sequence, hidden] and must live until backward.
  void Forward(const StageMemory<T>& memory, const Pass& pass, const T* input,
               BlockWorkspace<T>& workspace);
  const T* output() const { return output_.data(); }

  /// Turns the gradient of the output in workspace.d_residual into that of the input, and adds to
  /// the gradient arena. input and pass are those of the last Forward.
  void Backward(const StageMemory<T>& memory, const Pass& pass, const T* input,
                BlockWorkspace<T>& workspace);

  /// Where the block's parameters begin in the arena; they end where the next block's begin.
  std::int64_t begin() const { return begin_; }
  std::size_t activation_bytes() const;

 private:
  /// One pass's view of memory, place and buffers.
  struct View {
    const StageMemory<T>& memory;
    const Pass& pass;
    std::int64_t rows;
    BlockWorkspace<T>& workspace;
    KeptActivations<T>& kept;
    CheapActivations<T>& cheap;
  };
  View ViewOf(const StageMemory<T>& memory, const Pass& pass, BlockWorkspace<T>& workspace);

  void ForwardPreNorm(const View& view, const T* input, bool again);
  void ForwardPostNorm(const View& view, const T* input, bool again);
  void AttentionForward(const View& view, const T* input, const T* residual, T* output);
  void FeedForwardUp(const View& view, const T* input);
  void Project(const View& view, const LinearLayer<T>& projection, std::uint16_t branch,
               const T* input, const T* residual, T* output);
  void ComputeAgain(const View& view, const T* input);
  void Activate(const View& view);

  const T* BranchGradient(const View& view, std::uint16_t branch);
  void AttentionBackward(const View& view, const T* input, const T* residual, T* d_input);
  void FeedForwardBackward(const View& view, const T* input, const T* residual, T* d_input);
  kernels::AttentionShape AttentionShapeOf(const Pass& pass) const;
  void Rotate(const View& view, T* qkv, bool inverse) const;
  void Drop(const View& view, std::uint16_t branch, const T* input, const T* residual,
            T* output) const;

  const ModelDims dims_;
  const Architecture& kind_;
  const Recompute recompute_;
  const std::int64_t block_;
  const CounterRandom random_;
  std::int64_t begin_;
  NormLayer<T> ln_1_;
  LinearLayer<T> c_attn_, attention_c_proj_;
  NormLayer<T> ln_2_;
  LinearLayer<T> c_fc_, mlp_c_proj_;
  std::optional<KeptActivations<T>> kept_;
  std::optional<CheapActivations<T>> cheap_;
  kernels::Buffer<T> output_;
};

}  // namespace adaptive_train
