// One Transformer block, with hand-written gradients.
#pragma once

#include <cstdint>

#include "core/counter_random.h"
#include "core/model_shape.h"
#include "kernels/device.h"
#include "runtime/model/bucket_rule.h"
#include "runtime/model/layers.h"
#include "runtime/model/micro_batch_state.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/model/pass.h"
#include "runtime/model/stage_workspace.h"

namespace adaptive_train {

/// Pre-norm:
///   mid    = input + attn.c_proj(attention(attn.c_attn(ln_1(input))))
///   output = mid   + mlp.c_proj(activation(mlp.c_fc(ln_2(mid))))
/// Post-norm (BERT):
///   x      = ln_1(input + attn.c_proj(attention(attn.c_attn(input))))
///   output = ln_2(x     + mlp.c_proj(activation(mlp.c_fc(x))))
/// Rotary positions are applied inside attention, dropout to what is added to the residual. A block
/// knows the place of its weights and stores nothing of a pass: the state has what backward needs.
/// Where tensor ranks share rows, the residual stream, norms and dropout are of a rank's own rows,
/// and products gather and scatter them. Pointers are to device memory. Any thread, but only one per
/// state and workspace.
template <class T>
class TransformerBlock {
 public:
  /// Block number `block` of the model, whose parameters are in `layout`.
  TransformerBlock(const ModelDims& dims, const ParameterLayout& layout, std::int64_t block,
                   const StageOptions& options);

  /// Leaves its output in the state. input is own rows of [batch, sequence, hidden] and must live
  /// until backward.
  void Forward(const StageMemory<T>& memory, const Pass& pass, const T* input, BlockState<T>& state,
               BlockWorkspace<T>& workspace) const;

  /// Turns the gradient of the output in workspace.d_residual into that of the input, and adds to
  /// the gradient arena. input and pass are those of the state's last Forward.
  void Backward(const StageMemory<T>& memory, const Pass& pass, const T* input,
                BlockState<T>& state, BlockWorkspace<T>& workspace) const;
  /// The same but for the gradients of the linear layers' weights and biases. What these need
  /// besides takes the place of activations that are used up, and of the output.
  void BackwardInput(const StageMemory<T>& memory, const Pass& pass, const T* input,
                     BlockState<T>& state, BlockWorkspace<T>& workspace) const;
  /// Adds these gradients. Neither is for a block that recomputes.
  void BackwardWeight(const StageMemory<T>& memory, const Pass& pass, const T* input,
                      BlockState<T>& state, BlockWorkspace<T>& workspace) const;

 private:
  /// One pass's memory, parameters and buffers.
  struct View {
    const StageMemory<T>& memory;
    const Pass& pass;
    std::int64_t rows;  // of the products
    ElementRange own;   // of these, the rank's between the products
    BlockState<T>& state;
    BlockWorkspace<T>& workspace;
    KeptActivations<T>& kept;
    CheapActivations<T>& cheap;
    bool first_half = false;  // of a backward, which is all of it otherwise
  };
  View ViewOf(const StageMemory<T>& memory, const Pass& pass, BlockState<T>& state,
              BlockWorkspace<T>& workspace) const;

  void ForwardPreNorm(const View& view, const T* input, bool again) const;
  void ForwardPostNorm(const View& view, const T* input, bool again) const;
  void AttentionForward(const View& view, const T* input, const T* residual, T* output) const;
  void QueriesKeysValues(const View& view, const T* input) const;
  SharedHead<T> SharedHeadOf(const View& view, T* part, T* whole) const;
  void FeedForwardUp(const View& view, const T* input) const;
  void Project(const View& view, const LinearLayer<T>& projection, std::uint16_t branch,
               const T* input, const T* residual, T* output) const;
  void ComputeAgain(const View& view, const T* input) const;
  void Activate(const View& view) const;

  void Backward(const View& view, const T* input) const;
  const T* BranchGradient(const View& view, std::uint16_t branch) const;
  /// Backward of a projection whose output's gradient is given, or its first half, which keeps the
  /// gradient in `kept`.
  void ProjectBackward(const View& view, const LinearLayer<T>& projection, const T* d_output,
                       const T* input, T* d_input, kernels::Buffer<T>& kept,
                       const typename LinearLayer<T>::Epilogue& epilogue = {}) const;
  /// The same of the layer before it, whose output has `columns`.
  void ExpandBackward(const View& view, const LinearLayer<T>& layer, const T* d_output,
                      std::int64_t columns, const T* input, const T* residual, T* d_input,
                      kernels::Buffer<T>& kept) const;
  // Where a first half keeps the gradients of the linear layers' outputs: each is used up by then.
  kernels::Buffer<T>& KeptOfQkv(const View& view) const { return view.kept.qkv; }
  kernels::Buffer<T>& KeptOfAttention(const View& view) const { return view.kept.mid; }
  kernels::Buffer<T>& KeptOfFc(const View& view) const { return view.kept.fc; }
  kernels::Buffer<T>& KeptOfMlp(const View& view) const {
    return kind_.post_norm ? view.kept.sum : view.state.output;
  }
  void AttentionBackward(const View& view, const T* input, const T* residual, T* d_input) const;
  void FeedForwardBackward(const View& view, const T* input, const T* residual, T* d_input) const;
  kernels::AttentionShape AttentionShapeOf(const Pass& pass) const;
  void Rotate(const View& view, T* qkv, bool inverse) const;
  void Drop(const View& view, std::uint16_t branch, const T* input, const T* residual,
            T* output) const;

  const ModelDims dims_;
  const Architecture& kind_;
  const Recompute recompute_;
  const std::int64_t block_;
  const CounterRandom random_;
  NormLayer<T> ln_1_;
  LinearLayer<T> c_attn_, attention_c_proj_;
  NormLayer<T> ln_2_;
  LinearLayer<T> c_fc_, mlp_c_proj_;
};

}  // namespace adaptive_train
