// Forward and backward of the language model's head.
#include "runtime/model/head.h"

#include <cassert>

#include "runtime/model/scalars.h"

namespace adaptive_train {

namespace {

const ParameterRange& MatrixOf(const ModelDims& dims, const ParameterLayout& layout) {
  return *layout.Find(dims.tie_embeddings ? "wte.weight" : "lm_head.weight");
}

}  // namespace

template <class T>
LanguageHead<T>::LanguageHead(const ModelDims& dims, const ParameterLayout& layout)
    : hidden_(dims.hidden),
      vocabulary_(MatrixOf(dims, layout).rows),
      whole_vocabulary_(MatrixOf(dims, layout).whole_rows),
      weight_(MatrixOf(dims, layout).offset),
      bias_(layout.OffsetOf("head.bias")),
      norm_(layout, dims.kind == ModelKind::kBert ? "head.ln" : "ln_f", dims.NormEpsilon()) {
  if (dims.kind == ModelKind::kBert) dense_.emplace(layout, "head.dense");
}

template <class T>
double LanguageHead<T>::Loss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             std::span<const std::int32_t> targets, HeadState<T>& state,
                             HeadWorkspace<T>& workspace) const {
  return HeadLoss(memory, rows, input, targets, 0, nullptr, state, workspace);
}

template <class T>
double LanguageHead<T>::TrainingLoss(const StageMemory<T>& memory, std::int64_t rows,
                                     const T* input, std::span<const std::int32_t> targets,
                                     double loss_scale, HeadState<T>& state,
                                     HeadWorkspace<T>& workspace) const {
  return HeadLoss(memory, rows, input, targets, loss_scale, state.d_normal.data(), state,
                  workspace);
}

template <class T>
void LanguageHead<T>::Normalise(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                                HeadState<T>& state, HeadWorkspace<T>& workspace) const {
  if (dense_) {
    dense_->Forward(memory, rows, input, state.dense_output.data(),
                    {.gelu = kernels::GeluForm::kErf, .activated = state.activated.data()});
    input = state.activated.data();
  }
  norm_.Forward(memory, rows, input, workspace.normal.data(), state.norm);
}

template <class T>
double LanguageHead<T>::HeadLoss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                                 std::span<const std::int32_t> targets, double gradient_scale,
                                 T* d_normal, HeadState<T>& state,
                                 HeadWorkspace<T>& workspace) const {
  assert(static_cast<std::int64_t>(targets.size()) == rows);
  workspace.targets.CopyFromHost(targets);
  Normalise(memory, rows, input, state, workspace);
  const bool training = d_normal != nullptr;
  memory.device.HeadLoss({.rows = rows,
                          .columns = hidden_,
                          .vocab = vocabulary_.size(),
                          .input = workspace.normal.data(),
                          .weight = memory.parameters + weight_,
                          .bias = bias_ < 0 ? nullptr : memory.parameters + bias_,
                          .targets = workspace.targets.data(),
                          .losses = workspace.losses.data(),
                          .gradient_scale = gradient_scale,
                          .d_input = d_normal,
                          .d_weight = training ? memory.gradients + weight_ : nullptr,
                          .d_bias = training && bias_ >= 0 ? memory.gradients + bias_ : nullptr,
                          .part = {.first = vocabulary_.begin,
                                   .rank = memory.tensor.part.rank,
                                   .ranks = memory.tensor.part.ranks,
                                   .groups = memory.groups,
                                   .whole = whole_vocabulary_,
                                   .sum = memory.tensor.sum_on_host}});
  if (training) memory.Sum(d_normal, rows * hidden_);
  return memory.device.Sum(rows, workspace.losses.data());
}

template <class T>
void LanguageHead<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                               T* d_input, HeadState<T>& state) const {
  if (!dense_)
    return norm_.Backward(memory, rows, state.d_normal.data(), input, d_input, false, state.norm);
  T* d_dense = state.d_normal.data();
  norm_.Backward(memory, rows, d_dense, state.activated.data(), d_dense, false, state.norm);
  memory.device.GeluBackward({.count = rows * hidden_,
                              .form = kernels::GeluForm::kErf,
                              .input = state.dense_output.data(),
                              .d_output = d_dense,
                              .d_input = d_dense});
  dense_->Backward(memory, rows, d_dense, input, d_input);
}

template <class T>
void LanguageHead<T>::Logits(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             T* logits, HeadState<T>& state, HeadWorkspace<T>& workspace) const {
  assert(memory.tensor.part.ranks == 1);
  Normalise(memory, rows, input, state, workspace);
  memory.device.Matmul({.rows = rows,
                        .columns = vocabulary_.size(),
                        .inner = hidden_,
                        .a = workspace.normal.data(),
                        .b = memory.parameters + weight_,
                        .transpose_b = true,
                        .bias = bias_ < 0 ? nullptr : memory.parameters + bias_,
                        .c = logits});
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class LanguageHead)

}  // namespace adaptive_train
