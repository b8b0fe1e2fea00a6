// The layers' passes, each a few operations of the device.
#include "runtime/model/layers.h"

#include <cassert>

namespace adaptive_train {
namespace {

const ParameterRange& RangeOf(const ParameterLayout& layout, const std::string& name) {
  const ParameterRange* range = layout.Find(name);
  assert(range != nullptr);
  return *range;
}

}  // namespace

template <class T>
LinearLayer<T>::LinearLayer(const ParameterLayout& layout, const std::string& name)
    : in_(RangeOf(layout, name + ".weight").shape[0]),
      out_(RangeOf(layout, name + ".weight").shape[1]),
      weight_(RangeOf(layout, name + ".weight").offset),
      bias_(RangeOf(layout, name + ".bias").offset) {}

template <class T>
void LinearLayer<T>::Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             T* output) const {
  memory.device.Matmul({.rows = rows,
                        .columns = out_,
                        .inner = in_,
                        .a = input,
                        .b = memory.parameters + weight_,
                        .bias = memory.parameters + bias_,
                        .c = output});
}

template <class T>
void LinearLayer<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output,
                              const T* input, T* d_input) const {
  memory.device.Matmul({.rows = in_,
                        .columns = out_,
                        .inner = rows,
                        .a = input,
                        .transpose_a = true,
                        .b = d_output,
                        .c = memory.gradients + weight_,
                        .accumulate = true});
  memory.device.BiasBackward(
      {.rows = rows, .columns = out_, .d_output = d_output, .d_bias = memory.gradients + bias_});
  memory.device.Matmul({.rows = rows,
                        .columns = in_,
                        .inner = out_,
                        .a = d_output,
                        .b = memory.parameters + weight_,
                        .transpose_b = true,
                        .c = d_input});
}

template <class T>
NormLayer<T>::NormLayer(const ParameterLayout& layout, const std::string& name,
                        kernels::DeviceMemory& memory, std::int64_t max_rows)
    : columns_(RangeOf(layout, name + ".weight").count),
      weight_(RangeOf(layout, name + ".weight").offset),
      bias_(RangeOf(layout, name + ".bias").offset),
      output_(memory, static_cast<std::size_t>(max_rows * columns_)),
      mean_(memory, static_cast<std::size_t>(max_rows)),
      reciprocal_std_(memory, static_cast<std::size_t>(max_rows)) {}

template <class T>
void NormLayer<T>::Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input) {
  memory.device.LayerNorm({.rows = rows,
                           .columns = columns_,
                           .input = input,
                           .weight = memory.parameters + weight_,
                           .bias = memory.parameters + bias_,
                           .output = output_.data(),
                           .mean = mean_.data(),
                           .reciprocal_std = reciprocal_std_.data()});
}

template <class T>
void NormLayer<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output,
                            const T* input, T* d_input) const {
  memory.device.LayerNormBackward({.rows = rows,
                                   .columns = columns_,
                                   .d_output = d_output,
                                   .input = input,
                                   .weight = memory.parameters + weight_,
                                   .mean = mean_.data(),
                                   .reciprocal_std = reciprocal_std_.data(),
                                   .d_input = d_input,
                                   .d_weight = memory.gradients + weight_,
                                   .d_bias = memory.gradients + bias_});
}

template class LinearLayer<float>;
template class LinearLayer<double>;
template class NormLayer<float>;
template class NormLayer<double>;

}  // namespace adaptive_train
