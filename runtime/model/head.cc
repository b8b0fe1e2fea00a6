// Forward and backward of the language model's head.
#include "runtime/model/head.h"

#include <cassert>

namespace adaptive_train {
namespace {

const char* WeightName(const ModelDims& dims) {
  return dims.tie_embeddings ? "wte.weight" : "lm_head.weight";
}

}  // namespace

template <class T>
LanguageHead<T>::LanguageHead(const ModelDims& dims, const ParameterLayout& layout,
                              std::int64_t micro_batch, kernels::DeviceMemory& memory)
    : hidden_(dims.hidden),
      vocab_(dims.vocab),
      begin_(layout.Find("ln_f.weight")->offset),
      weight_(layout.Find(WeightName(dims))->offset),
      ln_f_(layout, "ln_f", memory, micro_batch * dims.sequence),
      logits_(memory, static_cast<std::size_t>(micro_batch * dims.sequence * dims.vocab)),
      losses_(memory, static_cast<std::size_t>(micro_batch * dims.sequence)),
      targets_(memory, static_cast<std::size_t>(micro_batch * dims.sequence)) {}

template <class T>
double LanguageHead<T>::Loss(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             std::span<const std::int32_t> targets) {
  return CrossEntropy(memory, rows, input, targets, 0, nullptr);
}

template <class T>
double LanguageHead<T>::TrainingLoss(const StageMemory<T>& memory, std::int64_t rows,
                                     const T* input, std::span<const std::int32_t> targets,
                                     double loss_scale) {
  return CrossEntropy(memory, rows, input, targets, loss_scale, logits_.data());
}

template <class T>
double LanguageHead<T>::CrossEntropy(const StageMemory<T>& memory, std::int64_t rows,
                                     const T* input, std::span<const std::int32_t> targets,
                                     double gradient_scale, T* d_logits) {
  assert(static_cast<std::int64_t>(targets.size()) == rows);
  targets_.CopyFromHost(targets);
  ln_f_.Forward(memory, rows, input);
  memory.device.Matmul({.rows = rows,
                        .columns = vocab_,
                        .inner = hidden_,
                        .a = ln_f_.output(),
                        .b = memory.parameters + weight_,
                        .transpose_b = true,
                        .c = logits_.data()});
  memory.device.CrossEntropy({.rows = rows,
                              .classes = vocab_,
                              .logits = logits_.data(),
                              .targets = targets_.data(),
                              .losses = losses_.data(),
                              .gradient_scale = gradient_scale,
                              .d_logits = d_logits});
  return memory.device.Sum(rows, losses_.data());
}

template <class T>
void LanguageHead<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                               T* d_norm, T* d_input) {
  memory.device.Matmul({.rows = vocab_,
                        .columns = hidden_,
                        .inner = rows,
                        .a = logits_.data(),
                        .transpose_a = true,
                        .b = ln_f_.output(),
                        .c = memory.gradients + weight_,
                        .accumulate = true});
  memory.device.Matmul({.rows = rows,
                        .columns = hidden_,
                        .inner = vocab_,
                        .a = logits_.data(),
                        .b = memory.parameters + weight_,
                        .c = d_norm});
  memory.device.Clear(d_input, static_cast<std::size_t>(rows * hidden_) * sizeof(T));
  ln_f_.Backward(memory, rows, d_norm, input, d_input);
}

template <class T>
std::size_t LanguageHead<T>::activation_bytes() const {
  return ln_f_.activation_bytes() + logits_.bytes() + losses_.bytes() + targets_.bytes();
}

template class LanguageHead<float>;
template class LanguageHead<double>;

}  // namespace adaptive_train
