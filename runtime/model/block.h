// One pre-norm Transformer block of GPT-2 with its activations, its gradients written out by hand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/layers.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Memory that the backward passes of all blocks share.
template <class T>
struct BlockWorkspace {
  BlockWorkspace(kernels::DeviceMemory& memory, std::int64_t max_rows, std::int64_t hidden);

  kernels::Buffer<T>
      d_residual;  // [rows, hidden]: gradient of the residual stream, goes down the blocks
  kernels::Buffer<T> d_narrow;  // [rows, hidden]
  kernels::Buffer<T> d_wide;    // [rows, 4 hidden]

  std::size_t bytes() const { return d_residual.bytes() + d_narrow.bytes() + d_wide.bytes(); }
};

///   mid    = input + attn.c_proj(attention(attn.c_attn(ln_1(input))))
///   output = mid   + mlp.c_proj(gelu(mlp.c_fc(ln_2(mid))))
/// Owns what backward needs of one forward. Pointers are to the device's memory. Not thread-safe.
template <class T>
class TransformerBlock {
 public:
  /// Block number `block` of the model, whose parameters stand in `layout`.
  TransformerBlock(const ModelDims& dims, const ParameterLayout& layout, std::int64_t block,
                   std::int64_t micro_batch, kernels::DeviceMemory& memory);

  /// input is [batch, sequence, hidden] and must live until backward.
  void Forward(const StageMemory<T>& memory, std::int64_t batch, const T* input);
  const T* output() const { return output_.data(); }

  /// Turns the gradient of the output in workspace.d_residual into that of the input, and adds to
  /// the gradient arena. input and batch are those of the last Forward.
  void Backward(const StageMemory<T>& memory, std::int64_t batch, const T* input,
                BlockWorkspace<T>& workspace);

  /// Where the block's parameters begin in the arena; they end where the next block's begin.
  std::int64_t begin() const { return begin_; }
  std::size_t activation_bytes() const;

 private:
  void FeedForwardBackward(const StageMemory<T>& memory, std::int64_t rows,
                           BlockWorkspace<T>& workspace);
  void AttentionBackward(const StageMemory<T>& memory, std::int64_t batch, const T* input,
                         BlockWorkspace<T>& workspace);

  std::int64_t hidden_, heads_, sequence_, begin_;
  NormLayer<T> ln_1_;
  LinearLayer<T> c_attn_, attention_c_proj_;
  NormLayer<T> ln_2_;
  LinearLayer<T> c_fc_, mlp_c_proj_;
  kernels::Buffer<T> qkv_, attention_, log_sum_exp_, mid_, fc_, gelu_, output_;
};

}  // namespace adaptive_train
