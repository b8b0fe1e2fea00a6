// Forward and backward of a Transformer block.
#include "runtime/model/block.h"

#include <string>

namespace adaptive_train {
namespace {

std::string NameOf(std::int64_t block, const char* part) {
  return "h." + std::to_string(block) + "." + part;
}

}  // namespace

template <class T>
BlockWorkspace<T>::BlockWorkspace(kernels::DeviceMemory& memory, std::int64_t max_rows,
                                  std::int64_t hidden)
    : d_residual(memory, static_cast<std::size_t>(max_rows * hidden)),
      d_narrow(memory, static_cast<std::size_t>(max_rows * hidden)),
      d_wide(memory, static_cast<std::size_t>(max_rows * 4 * hidden)) {}

template <class T>
TransformerBlock<T>::TransformerBlock(const ModelDims& dims, const ParameterLayout& layout,
                                      std::int64_t block, std::int64_t micro_batch,
                                      kernels::DeviceMemory& memory)
    : hidden_(dims.hidden),
      heads_(dims.heads),
      sequence_(dims.sequence),
      begin_(layout.Find(NameOf(block, "ln_1.weight"))->offset),
      ln_1_(layout, NameOf(block, "ln_1"), memory, micro_batch * dims.sequence),
      c_attn_(layout, NameOf(block, "attn.c_attn")),
      attention_c_proj_(layout, NameOf(block, "attn.c_proj")),
      ln_2_(layout, NameOf(block, "ln_2"), memory, micro_batch * dims.sequence),
      c_fc_(layout, NameOf(block, "mlp.c_fc")),
      mlp_c_proj_(layout, NameOf(block, "mlp.c_proj")) {
  const auto rows = static_cast<std::size_t>(micro_batch * dims.sequence);
  const auto hidden = static_cast<std::size_t>(dims.hidden);
  qkv_ = {memory, rows * 3 * hidden};
  attention_ = {memory, rows * hidden};
  log_sum_exp_ = {memory, rows * static_cast<std::size_t>(dims.heads)};
  mid_ = {memory, rows * hidden};
  fc_ = {memory, rows * 4 * hidden};
  gelu_ = {memory, rows * 4 * hidden};
  output_ = {memory, rows * hidden};
}

template <class T>
void TransformerBlock<T>::Forward(const StageMemory<T>& memory, std::int64_t batch,
                                  const T* input) {
  kernels::Device<T>& device = memory.device;
  const std::int64_t rows = batch * sequence_;
  ln_1_.Forward(memory, rows, input);
  c_attn_.Forward(memory, rows, ln_1_.output(), qkv_.data());
  device.Attention({.batch = batch,
                    .sequence = sequence_,
                    .heads = heads_,
                    .head_size = hidden_ / heads_,
                    .qkv = qkv_.data(),
                    .output = attention_.data(),
                    .log_sum_exp = log_sum_exp_.data()});
  attention_c_proj_.Forward(memory, rows, attention_.data(), mid_.data());
  device.Add({.count = rows * hidden_, .a = input, .b = mid_.data(), .output = mid_.data()});

  ln_2_.Forward(memory, rows, mid_.data());
  c_fc_.Forward(memory, rows, ln_2_.output(), fc_.data());
  device.Gelu({.count = rows * 4 * hidden_, .input = fc_.data(), .output = gelu_.data()});
  mlp_c_proj_.Forward(memory, rows, gelu_.data(), output_.data());
  device.Add(
      {.count = rows * hidden_, .a = mid_.data(), .b = output_.data(), .output = output_.data()});
}

template <class T>
void TransformerBlock<T>::Backward(const StageMemory<T>& memory, std::int64_t batch, const T* input,
                                   BlockWorkspace<T>& workspace) {
  FeedForwardBackward(memory, batch * sequence_, workspace);
  AttentionBackward(memory, batch, input, workspace);
}

// The residual's own share of the gradient is in d_residual already; the norm adds the branch's.
template <class T>
void TransformerBlock<T>::FeedForwardBackward(const StageMemory<T>& memory, std::int64_t rows,
                                              BlockWorkspace<T>& workspace) {
  T* d_mid = workspace.d_residual.data();
  T* d_fc = workspace.d_wide.data();
  T* d_norm = workspace.d_narrow.data();
  mlp_c_proj_.Backward(memory, rows, d_mid, gelu_.data(), d_fc);
  memory.device.GeluBackward(
      {.count = rows * 4 * hidden_, .input = fc_.data(), .d_output = d_fc, .d_input = d_fc});
  c_fc_.Backward(memory, rows, d_fc, ln_2_.output(), d_norm);
  ln_2_.Backward(memory, rows, d_norm, mid_.data(), d_mid);
}

template <class T>
void TransformerBlock<T>::AttentionBackward(const StageMemory<T>& memory, std::int64_t batch,
                                            const T* input, BlockWorkspace<T>& workspace) {
  const std::int64_t rows = batch * sequence_;
  T* d_input = workspace.d_residual.data();
  T* d_qkv = workspace.d_wide.data();
  T* d_narrow = workspace.d_narrow.data();
  attention_c_proj_.Backward(memory, rows, d_input, attention_.data(), d_narrow);
  memory.device.AttentionBackward({.batch = batch,
                                   .sequence = sequence_,
                                   .heads = heads_,
                                   .head_size = hidden_ / heads_,
                                   .qkv = qkv_.data(),
                                   .output = attention_.data(),
                                   .log_sum_exp = log_sum_exp_.data(),
                                   .d_output = d_narrow,
                                   .d_qkv = d_qkv});
  c_attn_.Backward(memory, rows, d_qkv, ln_1_.output(), d_narrow);
  ln_1_.Backward(memory, rows, d_narrow, input, d_input);
}

template <class T>
std::size_t TransformerBlock<T>::activation_bytes() const {
  return ln_1_.activation_bytes() + ln_2_.activation_bytes() + qkv_.bytes() + attention_.bytes() +
         log_sum_exp_.bytes() + mid_.bytes() + fc_.bytes() + gelu_.bytes() + output_.bytes();
}

template struct BlockWorkspace<float>;
template struct BlockWorkspace<double>;
template class TransformerBlock<float>;
template class TransformerBlock<double>;

}  // namespace adaptive_train
