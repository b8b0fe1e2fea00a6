// Forward and backward of a Transformer block.
#include "runtime/model/block.h"

#include <algorithm>
#include <string>

#include "runtime/model/scalars.h"

namespace adaptive_train {
namespace {

std::string NameOf(std::int64_t block, const char* part) {
  return "h." + std::to_string(block) + "." + part;
}

std::size_t Elements(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

std::int64_t RowsOf(const ModelDims& dims, const StageOptions& options) {
  return options.micro_batch * dims.sequence;
}

kernels::GeluForm GeluOf(const Architecture& kind) {
  if (kind.gated) return kernels::GeluForm::kNone;
  return kind.gelu_erf ? kernels::GeluForm::kErf : kernels::GeluForm::kTanh;
}

// The branches of a block, as dropout tells them apart.
constexpr std::uint16_t kAttentionBranch = 0, kFeedForwardBranch = 1;

}  // namespace

template <class T>
KeptActivations<T>::KeptActivations(const ModelDims& dims, std::int64_t rows,
                                    kernels::DeviceMemory& memory)
    : qkv(memory, Elements(rows, dims.QkvColumns())),
      attention(memory, Elements(rows, dims.AttentionColumns())),
      log_sum_exp(memory, Elements(rows, dims.heads)),
      mid(memory, Elements(rows, dims.hidden)),
      fc(memory, Elements(rows, dims.FfnColumns())),
      sum(memory, Architecture::Of(dims.kind).post_norm ? Elements(rows, dims.hidden) : 0) {}

template <class T>
std::size_t KeptActivations<T>::bytes() const {
  return qkv.bytes() + attention.bytes() + log_sum_exp.bytes() + mid.bytes() + fc.bytes() +
         sum.bytes();
}

template <class T>
CheapActivations<T>::CheapActivations(const ModelDims& dims, std::int64_t rows,
                                      kernels::DeviceMemory& memory)
    : norm_1(memory, Elements(rows, dims.hidden)),
      norm_2(memory, Architecture::Of(dims.kind).post_norm ? 0 : Elements(rows, dims.hidden)),
      activated(memory, Elements(rows, dims.Ffn())) {}

template <class T>
std::size_t CheapActivations<T>::bytes() const {
  return norm_1.bytes() + norm_2.bytes() + activated.bytes();
}

template <class T>
BlockWorkspace<T>::BlockWorkspace(const ModelDims& dims, const StageOptions& options,
                                  kernels::DeviceMemory& memory)
    : d_residual(memory, Elements(RowsOf(dims, options), dims.hidden)),
      d_narrow(memory,
               Elements(RowsOf(dims, options), std::max(dims.hidden, dims.AttentionColumns()))),
      d_wide(memory,
             Elements(RowsOf(dims, options), std::max(dims.QkvColumns(), dims.FfnColumns()))),
      d_gated(memory,
              Architecture::Of(dims.kind).gated ? Elements(RowsOf(dims, options), dims.Ffn()) : 0),
      branch(memory, options.dropout > 0 ? Elements(RowsOf(dims, options), dims.hidden) : 0) {
  if (options.recompute == Recompute::kFull) kept.emplace(dims, RowsOf(dims, options), memory);
  if (options.recompute != Recompute::kNone) cheap.emplace(dims, RowsOf(dims, options), memory);
}

template <class T>
std::size_t BlockWorkspace<T>::bytes() const {
  return d_residual.bytes() + d_narrow.bytes() + d_wide.bytes() + d_gated.bytes() + branch.bytes() +
         (kept ? kept->bytes() : 0) + (cheap ? cheap->bytes() : 0);
}

template <class T>
TransformerBlock<T>::TransformerBlock(const ModelDims& dims, const ParameterLayout& layout,
                                      std::int64_t block, const StageOptions& options,
                                      kernels::DeviceMemory& memory)
    : dims_(dims),
      kind_(Architecture::Of(dims.kind)),
      recompute_(options.recompute),
      block_(block),
      random_(options.seed, RandomPurpose::kDropout),
      begin_(layout.Find(NameOf(block, "ln_1.weight"))->offset),
      ln_1_(layout, NameOf(block, "ln_1"), dims.NormEpsilon(), memory, RowsOf(dims, options)),
      c_attn_(layout, NameOf(block, "attn.c_attn")),
      attention_c_proj_(layout, NameOf(block, "attn.c_proj")),
      ln_2_(layout, NameOf(block, "ln_2"), dims.NormEpsilon(), memory, RowsOf(dims, options)),
      c_fc_(layout, NameOf(block, "mlp.c_fc")),
      mlp_c_proj_(layout, NameOf(block, "mlp.c_proj")),
      output_(memory, Elements(RowsOf(dims, options), dims.hidden)) {
  if (recompute_ != Recompute::kFull) kept_.emplace(dims, RowsOf(dims, options), memory);
  if (recompute_ == Recompute::kNone) cheap_.emplace(dims, RowsOf(dims, options), memory);
}

template <class T>
std::size_t TransformerBlock<T>::activation_bytes() const {
  return ln_1_.bytes() + ln_2_.bytes() + output_.bytes() + (kept_ ? kept_->bytes() : 0) +
         (cheap_ ? cheap_->bytes() : 0);
}

template <class T>
typename TransformerBlock<T>::View TransformerBlock<T>::ViewOf(const StageMemory<T>& memory,
                                                               const Pass& pass,
                                                               BlockWorkspace<T>& workspace) {
  return {memory,
          pass,
          pass.batch * dims_.sequence,
          workspace,
          kept_ ? *kept_ : *workspace.kept,
          cheap_ ? *cheap_ : *workspace.cheap};
}

template <class T>
void TransformerBlock<T>::Forward(const StageMemory<T>& memory, const Pass& pass, const T* input,
                                  BlockWorkspace<T>& workspace) {
  const View view = ViewOf(memory, pass, workspace);
  kind_.post_norm ? ForwardPostNorm(view, input, false) : ForwardPreNorm(view, input, false);
}

// `again`: for backward, which needs all but the output.
template <class T>
void TransformerBlock<T>::ForwardPreNorm(const View& view, const T* input, bool again) {
  ln_1_.Forward(view.memory, view.rows, input, view.cheap.norm_1.data());
  AttentionForward(view, view.cheap.norm_1.data(), input, view.kept.mid.data());
  ln_2_.Forward(view.memory, view.rows, view.kept.mid.data(), view.cheap.norm_2.data());
  FeedForwardUp(view, view.cheap.norm_2.data());
  if (again) return;
  Project(view, mlp_c_proj_, kFeedForwardBranch, view.cheap.activated.data(), view.kept.mid.data(),
          output_.data());
}

template <class T>
void TransformerBlock<T>::ForwardPostNorm(const View& view, const T* input, bool again) {
  T* x = view.cheap.norm_1.data();
  AttentionForward(view, input, input, view.kept.mid.data());
  ln_1_.Forward(view.memory, view.rows, view.kept.mid.data(), x);
  FeedForwardUp(view, x);
  Project(view, mlp_c_proj_, kFeedForwardBranch, view.cheap.activated.data(), x,
          view.kept.sum.data());
  if (again) return;
  ln_2_.Forward(view.memory, view.rows, view.kept.sum.data(), output_.data());
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
void TransformerBlock<T>::AttentionForward(const View& view, const T* input, const T* residual,
                                           T* output) {
  c_attn_.Forward(view.memory, view.rows, input, view.kept.qkv.data());
  Rotate(view, view.kept.qkv.data(), false);
  view.memory.device.Attention({.shape = AttentionShapeOf(view.pass),
                                .qkv = view.kept.qkv.data(),
                                .output = view.kept.attention.data(),
                                .log_sum_exp = view.kept.log_sum_exp.data()});
  Project(view, attention_c_proj_, kAttentionBranch, view.kept.attention.data(), residual, output);
}

template <class T>
void TransformerBlock<T>::FeedForwardUp(const View& view, const T* input) {
  if (kind_.gated) {
    c_fc_.Forward(view.memory, view.rows, input, view.kept.fc.data());
    Activate(view);
  } else {
    c_fc_.Forward(view.memory, view.rows, input, view.kept.fc.data(),
                  {.gelu = GeluOf(kind_), .activated = view.cheap.activated.data()});
  }
}

template <class T>
void TransformerBlock<T>::Activate(const View& view) {
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
                                  T* output) {
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
  view.memory.device.Dropout({.batch = view.pass.batch,
                              .elements = dims_.sequence * dims_.hidden,
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
                                   BlockWorkspace<T>& workspace) {
  const View view = ViewOf(memory, pass, workspace);
  ComputeAgain(view, input);
  T* d = workspace.d_residual.data();
  T* d_norm = workspace.d_narrow.data();
  if (kind_.post_norm) {
    ln_2_.Backward(memory, view.rows, d, view.kept.sum.data(), d, false);
    FeedForwardBackward(view, view.cheap.norm_1.data(), d, d);
    ln_1_.Backward(memory, view.rows, d, view.kept.mid.data(), d, false);
    AttentionBackward(view, input, d, d);
  } else {
    // The residual's own share of the gradient is in d already; the norms add the branches'.
    FeedForwardBackward(view, view.cheap.norm_2.data(), nullptr, d_norm);
    ln_2_.Backward(memory, view.rows, d_norm, view.kept.mid.data(), d, true);
    AttentionBackward(view, view.cheap.norm_1.data(), nullptr, d_norm);
    ln_1_.Backward(memory, view.rows, d_norm, input, d, true);
  }
}

template <class T>
void TransformerBlock<T>::ComputeAgain(const View& view, const T* input) {
  if (recompute_ == Recompute::kNone) return;
  if (recompute_ == Recompute::kFull) {
    kind_.post_norm ? ForwardPostNorm(view, input, true) : ForwardPreNorm(view, input, true);
    return;
  }
  ln_1_.Forward(view.memory, view.rows, kind_.post_norm ? view.kept.mid.data() : input,
                view.cheap.norm_1.data());
  if (!kind_.post_norm)
    ln_2_.Forward(view.memory, view.rows, view.kept.mid.data(), view.cheap.norm_2.data());
  Activate(view);
}

/// The gradient of a branch's output: that of the residual, behind dropout.
template <class T>
const T* TransformerBlock<T>::BranchGradient(const View& view, std::uint16_t branch) {
  const T* d_output = view.workspace.d_residual.data();
  if (view.pass.dropout == 0) return d_output;
  Drop(view, branch, d_output, nullptr, view.workspace.branch.data());
  return view.workspace.branch.data();
}

template <class T>
void TransformerBlock<T>::FeedForwardBackward(const View& view, const T* input, const T* residual,
                                              T* d_input) {
  const T* d_output = BranchGradient(view, kFeedForwardBranch);
  T* d_fc = view.workspace.d_wide.data();
  if (kind_.gated) {
    T* d_gated = view.workspace.d_gated.data();
    mlp_c_proj_.Backward(view.memory, view.rows, d_output, view.cheap.activated.data(), d_gated);
    view.memory.device.SwigluBackward({.rows = view.rows,
                                       .columns = dims_.Ffn(),
                                       .input = view.kept.fc.data(),
                                       .d_output = d_gated,
                                       .d_input = d_fc});
  } else {
    mlp_c_proj_.Backward(view.memory, view.rows, d_output, view.cheap.activated.data(), d_fc,
                         {.gelu = GeluOf(kind_), .gelu_input = view.kept.fc.data()});
  }
  c_fc_.Backward(view.memory, view.rows, d_fc, input, d_input, {.residual = residual});
}

template <class T>
void TransformerBlock<T>::AttentionBackward(const View& view, const T* input, const T* residual,
                                            T* d_input) {
  const T* d_output = BranchGradient(view, kAttentionBranch);
  T* d_attention = view.workspace.d_narrow.data();
  T* d_qkv = view.workspace.d_wide.data();
  attention_c_proj_.Backward(view.memory, view.rows, d_output, view.kept.attention.data(),
                             d_attention);
  view.memory.device.AttentionBackward({.shape = AttentionShapeOf(view.pass),
                                        .qkv = view.kept.qkv.data(),
                                        .output = view.kept.attention.data(),
                                        .log_sum_exp = view.kept.log_sum_exp.data(),
                                        .d_output = d_attention,
                                        .d_qkv = d_qkv});
  Rotate(view, d_qkv, true);
  c_attn_.Backward(view.memory, view.rows, d_qkv, input, d_input, {.residual = residual});
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct KeptActivations)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct CheapActivations)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct BlockWorkspace)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class TransformerBlock)

}  // namespace adaptive_train
