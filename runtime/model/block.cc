// Forward and backward of a Transformer block.
#include "runtime/model/block.h"

#include <string>

#include "runtime/model/scalars.h"

namespace adaptive_train {
namespace {

std::string NameOf(std::int64_t block, const char* part) {
  return "h." + std::to_string(block) + "." + part;
}

kernels::GeluForm GeluOf(const Architecture& kind) {
  if (kind.gated) return kernels::GeluForm::kNone;
  return kind.gelu_erf ? kernels::GeluForm::kErf : kernels::GeluForm::kTanh;
}

// The branches of a block, distinguished for dropout.
constexpr std::uint16_t kAttentionBranch = 0, kFeedForwardBranch = 1;

}  // namespace

template <class T>
TransformerBlock<T>::TransformerBlock(const ModelDims& dims, const ParameterLayout& layout,
                                      std::int64_t block, const StageOptions& options)
    : dims_(dims),
      kind_(Architecture::Of(dims.kind)),
      recompute_(options.recompute),
      block_(block),
      random_(options.seed, RandomPurpose::kDropout),
      ln_1_(layout, NameOf(block, "ln_1"), dims.NormEpsilon()),
      c_attn_(layout, NameOf(block, "attn.c_attn")),
      attention_c_proj_(layout, NameOf(block, "attn.c_proj")),
      ln_2_(layout, NameOf(block, "ln_2"), dims.NormEpsilon()),
      c_fc_(layout, NameOf(block, "mlp.c_fc")),
      mlp_c_proj_(layout, NameOf(block, "mlp.c_proj")) {}

template <class T>
typename TransformerBlock<T>::View TransformerBlock<T>::ViewOf(const StageMemory<T>& memory,
                                                               const Pass& pass,
                                                               BlockState<T>& state,
                                                               BlockWorkspace<T>& workspace) const {
  const std::int64_t rows = pass.batch * dims_.sequence;
  return {memory,
          pass,
          rows,
          memory.OwnRows(rows),
          state,
          workspace,
          state.kept ? *state.kept : *workspace.kept,
          state.cheap ? *state.cheap : *workspace.cheap,
          false};
}

template <class T>
void TransformerBlock<T>::Forward(const StageMemory<T>& memory, const Pass& pass, const T* input,
                                  BlockState<T>& state, BlockWorkspace<T>& workspace) const {
  const View view = ViewOf(memory, pass, state, workspace);
  kind_.post_norm ? ForwardPostNorm(view, input, false) : ForwardPreNorm(view, input, false);
}

// `again`: recomputation for backward, which needs everything but the output.
template <class T>
void TransformerBlock<T>::ForwardPreNorm(const View& view, const T* input, bool again) const {
  ln_1_.Forward(view.memory, view.own.size(), input, view.cheap.norm_1.data(), view.state.ln_1);
  AttentionForward(view, view.cheap.norm_1.data(), input, view.kept.mid.data());
  ln_2_.Forward(view.memory, view.own.size(), view.kept.mid.data(), view.cheap.norm_2.data(),
                view.state.ln_2);
  FeedForwardUp(view, view.cheap.norm_2.data());
  if (again) return;
  Project(view, mlp_c_proj_, kFeedForwardBranch, view.cheap.activated.data(), view.kept.mid.data(),
          view.state.output.data());
}

template <class T>
void TransformerBlock<T>::ForwardPostNorm(const View& view, const T* input, bool again) const {
  T* x = view.cheap.norm_1.data();
  AttentionForward(view, input, input, view.kept.mid.data());
  ln_1_.Forward(view.memory, view.own.size(), view.kept.mid.data(), x, view.state.ln_1);
  FeedForwardUp(view, x);
  Project(view, mlp_c_proj_, kFeedForwardBranch, view.cheap.activated.data(), x,
          view.kept.sum.data());
  if (again) return;
  ln_2_.Forward(view.memory, view.own.size(), view.kept.sum.data(), view.state.output.data(),
                view.state.ln_2);
}

template <class T>
kernels::AttentionShape TransformerBlock<T>::AttentionShapeOf(const Pass& pass) const {
  return {.batch = pass.batch,
          .sequence = dims_.sequence,
          .heads = dims_.heads,
          .kv_heads = dims_.KvHeads(),
          .head_size = dims_.HeadSize(),
          .causal = kind_.causal};
}

template <class T>
void TransformerBlock<T>::Rotate(const View& view, T* qkv, bool inverse) const {
  if (!kind_.rotary) return;
  view.memory.device.Rope({.rows = view.rows,
                           .sequence = dims_.sequence,
                           .heads = dims_.heads + 2 * dims_.KvHeads(),
                           .rotated_heads = dims_.heads + dims_.KvHeads(),
                           .head_size = dims_.HeadSize(),
                           .base = dims_.rope_base,
                           .scaling = dims_.rope_scaling,
                           .inverse = inverse,
                           .values = qkv});
}

template <class T>
SharedHead<T> TransformerBlock<T>::SharedHeadOf(const View& view, T* part, T* whole) const {
  return {view.rows, dims_.AttentionColumns(), dims_.HeadSize(), dims_.kv_ranks, part, whole};
}

template <class T>
void TransformerBlock<T>::QueriesKeysValues(const View& view, const T* input) const {
  T* qkv = view.kept.qkv.data();
  const bool shared = dims_.kv_ranks > 1;
  T* part = shared ? view.workspace.qkv_part.data() : qkv;
  c_attn_.Forward(view.memory, view.rows, input, part);
  if (shared) view.memory.tensor.gather_head(SharedHeadOf(view, part, qkv));
  Rotate(view, qkv, false);
}

template <class T>
void TransformerBlock<T>::AttentionForward(const View& view, const T* input, const T* residual,
                                           T* output) const {
  QueriesKeysValues(view, input);
  view.memory.device.Attention({.shape = AttentionShapeOf(view.pass),
                                .qkv = view.kept.qkv.data(),
                                .output = view.kept.attention.data(),
                                .log_sum_exp = view.kept.log_sum_exp.data()});
  Project(view, attention_c_proj_, kAttentionBranch, view.kept.attention.data(), residual, output);
}

template <class T>
void TransformerBlock<T>::FeedForwardUp(const View& view, const T* input) const {
  if (kind_.gated) {
    c_fc_.Forward(view.memory, view.rows, input, view.kept.fc.data());
    Activate(view);
  } else {
    c_fc_.Forward(view.memory, view.rows, input, view.kept.fc.data(),
                  {.gelu = GeluOf(kind_), .activated = view.cheap.activated.data()});
  }
}

template <class T>
void TransformerBlock<T>::Activate(const View& view) const {
  if (kind_.gated) {
    view.memory.device.Swiglu({.rows = view.rows,
                               .columns = dims_.Ffn(),
                               .input = view.kept.fc.data(),
                               .output = view.cheap.activated.data()});
  } else {
    view.memory.device.Gelu({.count = view.rows * dims_.Ffn(),
                             .form = GeluOf(kind_),
                             .input = view.kept.fc.data(),
                             .output = view.cheap.activated.data()});
  }
}

template <class T>
void TransformerBlock<T>::Project(const View& view, const LinearLayer<T>& projection,
                                  std::uint16_t branch, const T* input, const T* residual,
                                  T* output) const {
  if (view.pass.dropout == 0) {
    projection.Forward(view.memory, view.rows, input, output, {.residual = residual});
  } else {
    projection.Forward(view.memory, view.rows, input, view.workspace.branch.data());
    Drop(view, branch, view.workspace.branch.data(), residual, output);
  }
}

template <class T>
void TransformerBlock<T>::Drop(const View& view, std::uint16_t branch, const T* input,
                               const T* residual, T* output) const {
  view.memory.device.Dropout({.elements = dims_.sequence * dims_.hidden,
                              .begin = view.own.begin * dims_.hidden,
                              .end = view.own.end * dims_.hidden,
                              .probability = view.pass.dropout,
                              .random = random_,
                              .step = view.pass.place.step,
                              .first_sample = view.pass.place.first_sample,
                              .layer = static_cast<std::uint16_t>(2 * block_ + branch),
                              .input = input,
                              .residual = residual,
                              .output = output});
}

template <class T>
void TransformerBlock<T>::Backward(const StageMemory<T>& memory, const Pass& pass, const T* input,
                                   BlockState<T>& state, BlockWorkspace<T>& workspace) const {
  const View view = ViewOf(memory, pass, state, workspace);
  ComputeAgain(view, input);
  Backward(view, input);
}

template <class T>
void TransformerBlock<T>::BackwardInput(const StageMemory<T>& memory, const Pass& pass,
                                        const T* input, BlockState<T>& state,
                                        BlockWorkspace<T>& workspace) const {
  View view = ViewOf(memory, pass, state, workspace);
  view.first_half = true;
  Backward(view, input);
}

template <class T>
void TransformerBlock<T>::Backward(const View& view, const T* input) const {
  const StageMemory<T>& memory = view.memory;
  T* d = view.workspace.d_residual.data();
  T* d_norm = view.workspace.d_narrow.data();
  if (kind_.post_norm) {
    ln_2_.Backward(memory, view.own.size(), d, view.kept.sum.data(), d, false, view.state.ln_2);
    FeedForwardBackward(view, view.cheap.norm_1.data(), d, d);
    ln_1_.Backward(memory, view.own.size(), d, view.kept.mid.data(), d, false, view.state.ln_1);
    AttentionBackward(view, input, d, d);
  } else {
    // d already has the residual's share of the gradient; the norms add the branches'.
    FeedForwardBackward(view, view.cheap.norm_2.data(), nullptr, d_norm);
    ln_2_.Backward(memory, view.own.size(), d_norm, view.kept.mid.data(), d, true, view.state.ln_2);
    AttentionBackward(view, view.cheap.norm_1.data(), nullptr, d_norm);
    ln_1_.Backward(memory, view.own.size(), d_norm, input, d, true, view.state.ln_1);
  }
}

template <class T>
void TransformerBlock<T>::BackwardWeight(const StageMemory<T>& memory, const Pass& pass,
                                         const T* input, BlockState<T>& state,
                                         BlockWorkspace<T>& workspace) const {
  const View view = ViewOf(memory, pass, state, workspace);
  const T* norm_1 = view.cheap.norm_1.data();
  const T* fc_input = kind_.post_norm ? norm_1 : view.cheap.norm_2.data();
  mlp_c_proj_.WeightGradient(memory, view.rows, KeptOfMlp(view).data(),
                             view.cheap.activated.data());
  c_fc_.WeightGradient(memory, view.rows, KeptOfFc(view).data(), fc_input);
  attention_c_proj_.WeightGradient(memory, view.rows, KeptOfAttention(view).data(),
                                   view.kept.attention.data());
  c_attn_.WeightGradient(memory, view.rows, KeptOfQkv(view).data(),
                         kind_.post_norm ? input : norm_1);
}

template <class T>
void TransformerBlock<T>::ProjectBackward(const View& view, const LinearLayer<T>& projection,
                                          const T* d_output, const T* input, T* d_input,
                                          kernels::Buffer<T>& kept,
                                          const typename LinearLayer<T>::Epilogue& epilogue) const {
  if (!view.first_half)
    return projection.Backward(view.memory, view.rows, d_output, input, d_input, epilogue);
  projection.InputGradient(view.memory, view.rows, d_output, d_input, epilogue);
  view.memory.device.CopyWithin(
      kept.data(), d_output, static_cast<std::size_t>(view.own.size() * dims_.hidden) * sizeof(T));
}

template <class T>
void TransformerBlock<T>::ExpandBackward(const View& view, const LinearLayer<T>& layer,
                                         const T* d_output, std::int64_t columns, const T* input,
                                         const T* residual, T* d_input,
                                         kernels::Buffer<T>& kept) const {
  if (!view.first_half)
    return layer.Backward(view.memory, view.rows, d_output, input, d_input, {.residual = residual});
  view.memory.device.CopyWithin(kept.data(), d_output,
                                static_cast<std::size_t>(view.rows * columns) * sizeof(T));
  layer.InputGradient(view.memory, view.rows, d_output, d_input, {.residual = residual});
}

template <class T>
void TransformerBlock<T>::ComputeAgain(const View& view, const T* input) const {
  if (recompute_ == Recompute::kNone) return;
  if (recompute_ == Recompute::kFull) {
    kind_.post_norm ? ForwardPostNorm(view, input, true) : ForwardPreNorm(view, input, true);
    return;
  }
  ln_1_.Forward(view.memory, view.own.size(), kind_.post_norm ? view.kept.mid.data() : input,
                view.cheap.norm_1.data(), view.state.ln_1);
  if (!kind_.post_norm)
    ln_2_.Forward(view.memory, view.own.size(), view.kept.mid.data(), view.cheap.norm_2.data(),
                  view.state.ln_2);
  Activate(view);
}

/// The gradient of a branch's output: that of the residual, through dropout.
template <class T>
const T* TransformerBlock<T>::BranchGradient(const View& view, std::uint16_t branch) const {
  const T* d_output = view.workspace.d_residual.data();
  if (view.pass.dropout == 0) return d_output;
  Drop(view, branch, d_output, nullptr, view.workspace.branch.data());
  return view.workspace.branch.data();
}

template <class T>
void TransformerBlock<T>::FeedForwardBackward(const View& view, const T* input, const T* residual,
                                              T* d_input) const {
  const T* d_output = BranchGradient(view, kFeedForwardBranch);
  T* d_fc = view.workspace.d_wide.data();
  if (kind_.gated) {
    T* d_gated = view.workspace.d_gated.data();
    ProjectBackward(view, mlp_c_proj_, d_output, view.cheap.activated.data(), d_gated,
                    KeptOfMlp(view));
    view.memory.device.SwigluBackward({.rows = view.rows,
                                       .columns = dims_.Ffn(),
                                       .input = view.kept.fc.data(),
                                       .d_output = d_gated,
                                       .d_input = d_fc});
  } else {
    ProjectBackward(view, mlp_c_proj_, d_output, view.cheap.activated.data(), d_fc, KeptOfMlp(view),
                    {.gelu = GeluOf(kind_), .gelu_input = view.kept.fc.data()});
  }
  ExpandBackward(view, c_fc_, d_fc, dims_.FfnColumns(), input, residual, d_input, KeptOfFc(view));
}

template <class T>
void TransformerBlock<T>::AttentionBackward(const View& view, const T* input, const T* residual,
                                            T* d_input) const {
  const T* d_output = BranchGradient(view, kAttentionBranch);
  T* d_attention = view.workspace.d_narrow.data();
  const bool shared = dims_.kv_ranks > 1;
  T* d_qkv = view.workspace.d_wide.data();
  T* d_part = shared ? view.workspace.qkv_part.data() : d_qkv;
  ProjectBackward(view, attention_c_proj_, d_output, view.kept.attention.data(), d_attention,
                  KeptOfAttention(view));
  view.memory.device.AttentionBackward({.shape = AttentionShapeOf(view.pass),
                                        .qkv = view.kept.qkv.data(),
                                        .output = view.kept.attention.data(),
                                        .log_sum_exp = view.kept.log_sum_exp.data(),
                                        .d_output = d_attention,
                                        .d_qkv = d_qkv});
  Rotate(view, d_qkv, true);
  if (shared) view.memory.tensor.sum_head(SharedHeadOf(view, d_part, d_qkv));
  ExpandBackward(view, c_attn_, d_part, dims_.QkvProductColumns(), input, residual, d_input,
                 KeptOfQkv(view));
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class TransformerBlock)

}  // namespace adaptive_train
