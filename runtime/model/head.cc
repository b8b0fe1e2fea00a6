// Forward and backward of the language model's head.
#include "runtime/model/head.h"

#include <cassert>

#include "runtime/model/scalars.h"

namespace adaptive_train {

template <class T>
LanguageHead<T>::LanguageHead(const ModelDims& dims, const ParameterLayout& layout,
                              const StageOptions& options, kernels::DeviceMemory& memory)
    : hidden_(dims.hidden),
      vocab_(dims.vocab),
      begin_(layout.OffsetOf(dims.kind == ModelKind::kBert ? "head.dense.weight" : "ln_f.weight")),
      weight_(layout.OffsetOf(dims.tie_embeddings ? "wte.weight" : "lm_head.weight")),
      bias_(layout.OffsetOf("head.bias")),
      norm_(layout, dims.kind == ModelKind::kBert ? "head.ln" : "ln_f", dims.NormEpsilon(), memory,
            options.micro_batch * dims.sequence) {
  const auto rows = static_cast<std::size_t>(options.micro_batch * dims.sequence);
  const std::size_t elements = rows * static_cast<std::size_t>(hidden_);
  if (dims.kind == ModelKind::kBert) {
    dense_.emplace(layout, "head.dense");
    dense_output_ = {memory, elements};
    activated_ = {memory, elements};
  }
  normal_ = {memory, elements};
  d_normal_ = {memory, elements};
  losses_ = {memory, rows};
  targets_ = {memory, rows};
}

template <class T>
double LanguageHead<T>::Loss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             std::span<const std::int32_t> targets) {
  return HeadLoss(memory, rows, input, targets, 0, nullptr);
}

template <class T>
double LanguageHead<T>::TrainingLoss(const StageMemory<T>& memory, std::int64_t rows,
                                     const T* input, std::span<const std::int32_t> targets,
                                     double loss_scale) {
  return HeadLoss(memory, rows, input, targets, loss_scale, d_normal_.data());
}

template <class T>
void LanguageHead<T>::Normalise(const StageMemory<T>& memory, std::int64_t rows, const T* input) {
  if (dense_) {
    dense_->Forward(memory, rows, input, dense_output_.data(),
                    {.gelu = kernels::GeluForm::kErf, .activated = activated_.data()});
    input = activated_.data();
  }
  norm_.Forward(memory, rows, input, normal_.data());
}

template <class T>
double LanguageHead<T>::HeadLoss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                                 std::span<const std::int32_t> targets, double gradient_scale,
                                 T* d_normal) {
  assert(static_cast<std::int64_t>(targets.size()) == rows);
  targets_.CopyFromHost(targets);
  Normalise(memory, rows, input);
  const bool training = d_normal != nullptr;
  memory.device.HeadLoss({.rows = rows,
                          .columns = hidden_,
                          .vocab = vocab_,
                          .input = normal_.data(),
                          .weight = memory.parameters + weight_,
                          .bias = bias_ < 0 ? nullptr : memory.parameters + bias_,
                          .targets = targets_.data(),
                          .losses = losses_.data(),
                          .gradient_scale = gradient_scale,
                          .d_input = d_normal,
                          .d_weight = training ? memory.gradients + weight_ : nullptr,
                          .d_bias = training && bias_ >= 0 ? memory.gradients + bias_ : nullptr});
  return memory.device.Sum(rows, losses_.data());
}

template <class T>
void LanguageHead<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                               T* d_input) {
  if (!dense_) return norm_.Backward(memory, rows, d_normal_.data(), input, d_input, false);
  T* d_dense = d_normal_.data();
  norm_.Backward(memory, rows, d_dense, activated_.data(), d_dense, false);
  memory.device.GeluBackward({.count = rows * hidden_,
                              .form = kernels::GeluForm::kErf,
                              .input = dense_output_.data(),
                              .d_output = d_dense,
                              .d_input = d_dense});
  dense_->Backward(memory, rows, d_dense, input, d_input);
}

template <class T>
void LanguageHead<T>::Logits(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             T* logits) {
  Normalise(memory, rows, input);
  memory.device.Matmul({.rows = rows,
                        .columns = vocab_,
                        .inner = hidden_,
                        .a = normal_.data(),
                        .b = memory.parameters + weight_,
                        .transpose_b = true,
                        .bias = bias_ < 0 ? nullptr : memory.parameters + bias_,
                        .c = logits});
}

template <class T>
std::size_t LanguageHead<T>::activation_bytes() const {
  return norm_.bytes() + dense_output_.bytes() + activated_.bytes() + normal_.bytes() +
         d_normal_.bytes() + losses_.bytes() + targets_.bytes();
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class LanguageHead)

}  // namespace adaptive_train
