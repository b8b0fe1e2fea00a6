// The passes of the layers, each one or two operations of the device.
#include "runtime/model/layers.h"

#include <cassert>

#include "runtime/model/scalars.h"

namespace adaptive_train {
namespace {

const ParameterRange& WeightOf(const ParameterLayout& layout, const std::string& name) {
  const ParameterRange* range = layout.Find(name + ".weight");
  assert(range != nullptr);
  return *range;
}

}  // namespace

template <class T>
LinearLayer<T>::LinearLayer(const ParameterLayout& layout, const std::string& name)
    : split_(WeightOf(layout, name).split),
      in_runs_{WeightOf(layout, name).shape[0]},
      out_runs_(WeightOf(layout, name).column_runs),
      in_(WeightOf(layout, name).shape[0]),
      out_(WeightOf(layout, name).shape[1]),
      weight_(WeightOf(layout, name).offset),
      bias_(layout.OffsetOf(name + ".bias")) {}

template <class T>
void LinearLayer<T>::Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             T* output, const Epilogue& epilogue) const {
  const bool summed = split_ == TensorSplit::kRows && memory.tensor.part.ranks > 1;
  const bool adds = !summed || memory.tensor.part.rank == 0;
  assert(!summed || epilogue.gelu == kernels::GeluForm::kNone);
  memory.device.Matmul({.rows = rows,
                        .columns = out_,
                        .inner = in_,
                        .a = input,
                        .b = memory.parameters + weight_,
                        .bias = bias_ < 0 || !adds ? nullptr : memory.parameters + bias_,
                        .residual = adds ? epilogue.residual : nullptr,
                        .c = output,
                        .groups = GroupsOf(memory, TensorSplit::kRows, in_runs_),
                        .gelu = epilogue.gelu,
                        .activated = epilogue.activated});
  if (summed) memory.Sum(output, rows * out_);
}

template <class T>
void LinearLayer<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output,
                              const T* input, T* d_input, const Epilogue& epilogue) const {
  WeightGradient(memory, rows, d_output, input);
  InputGradient(memory, rows, d_output, d_input, epilogue);
}

template <class T>
void LinearLayer<T>::WeightGradient(const StageMemory<T>& memory, std::int64_t rows,
                                    const T* d_output, const T* input) const {
  memory.device.WeightGradient({.rows = rows,
                                .in = in_,
                                .out = out_,
                                .input = input,
                                .d_output = d_output,
                                .d_weight = memory.gradients + weight_,
                                .d_bias = bias_ < 0 ? nullptr : memory.gradients + bias_});
}

template <class T>
void LinearLayer<T>::InputGradient(const StageMemory<T>& memory, std::int64_t rows,
                                   const T* d_output, T* d_input, const Epilogue& epilogue) const {
  const bool summed = split_ == TensorSplit::kColumns && memory.tensor.part.ranks > 1;
  const bool adds = !summed || memory.tensor.part.rank == 0;
  assert(!summed || epilogue.gelu == kernels::GeluForm::kNone);
  memory.device.Matmul({.rows = rows,
                        .columns = in_,
                        .inner = out_,
                        .a = d_output,
                        .b = memory.parameters + weight_,
                        .transpose_b = true,
                        .residual = adds ? epilogue.residual : nullptr,
                        .c = d_input,
                        .groups = GroupsOf(memory, TensorSplit::kColumns, out_runs_),
                        .gelu = epilogue.gelu,
                        .gelu_input = epilogue.gelu_input});
  if (summed) memory.Sum(d_input, rows * in_);
}

template <class T>
NormLayer<T>::NormLayer(const ParameterLayout& layout, const std::string& name, double epsilon)
    : epsilon_(epsilon),
      columns_(WeightOf(layout, name).count),
      weight_(WeightOf(layout, name).offset),
      bias_(layout.OffsetOf(name + ".bias")) {}

template <class T>
void NormLayer<T>::Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                           T* output, NormStatistics<T>& statistics) const {
  const kernels::NormArguments<T> arguments{.rows = rows,
                                            .columns = columns_,
                                            .epsilon = epsilon_,
                                            .input = input,
                                            .weight = memory.parameters + weight_,
                                            .bias = bias_ < 0 ? nullptr : memory.parameters + bias_,
                                            .output = output,
                                            .mean = statistics.mean.data(),
                                            .reciprocal_std = statistics.reciprocal_std.data()};
  bias_ < 0 ? memory.device.RmsNorm(arguments) : memory.device.LayerNorm(arguments);
}

template <class T>
void NormLayer<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output,
                            const T* input, T* d_input, bool accumulate,
                            const NormStatistics<T>& statistics) const {
  const kernels::NormBackwardArguments<T> arguments{
      .rows = rows,
      .columns = columns_,
      .d_output = d_output,
      .input = input,
      .weight = memory.parameters + weight_,
      .mean = statistics.mean.data(),
      .reciprocal_std = statistics.reciprocal_std.data(),
      .d_input = d_input,
      .accumulate = accumulate,
      .d_weight = memory.gradients + weight_,
      .d_bias = bias_ < 0 ? nullptr : memory.gradients + bias_};
  bias_ < 0 ? memory.device.RmsNormBackward(arguments) : memory.device.LayerNormBackward(arguments);
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class LinearLayer)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class NormLayer)

}  // namespace adaptive_train
