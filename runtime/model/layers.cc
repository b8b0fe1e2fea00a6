// The passes of the layers, each one or two operations of the device.
#include "runtime/model/layers.h"

#include <cassert>
#include <cstddef>
#include <span>

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
const T* StageMemory<T>::Whole(std::int64_t rows, std::int64_t columns, const T* own) const {
  if (!SharesRows()) return own;
  const ElementRange here = OwnRows(rows);
  const std::size_t row = static_cast<std::size_t>(columns) * sizeof(T);
  device.CopyWithin(whole + here.begin * columns, own, static_cast<std::size_t>(here.size()) * row);
  tensor.gather(std::as_writable_bytes(std::span(whole, static_cast<std::size_t>(rows * columns))),
                row);
  return whole;
}

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
const T* LinearLayer<T>::WholeInput(const StageMemory<T>& memory, std::int64_t rows,
                                    const T* input) const {
  return split_ == TensorSplit::kColumns ? memory.Whole(rows, in_, input) : input;
}

template <class T>
const T* LinearLayer<T>::WholeGradient(const StageMemory<T>& memory, std::int64_t rows,
                                       const T* d_output) const {
  return split_ == TensorSplit::kRows ? memory.Whole(rows, out_, d_output) : d_output;
}

/// Where rows are shared, the sum adds the residual to the rank's own ones.
template <class T>
typename LinearLayer<T>::Summed LinearLayer<T>::SummedTo(const StageMemory<T>& memory, bool summed,
                                                         T* result, const T* residual) const {
  if (!summed) return {result, residual};
  if (memory.SharesRows()) return {memory.whole, nullptr};
  return {result, memory.tensor.part.rank == 0 ? residual : nullptr};
}

template <class T>
void LinearLayer<T>::Sum(const StageMemory<T>& memory, std::int64_t rows, std::int64_t columns,
                         T* result, const T* residual) const {
  if (!memory.SharesRows()) return memory.Sum(result, rows * columns);
  memory.tensor.sum_rows({rows, columns, memory.whole, residual, result});
}

template <class T>
void LinearLayer<T>::Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input,
                             T* output, const Epilogue& epilogue) const {
  const bool summed = split_ == TensorSplit::kRows && memory.tensor.part.ranks > 1;
  const bool adds = !summed || memory.tensor.part.rank == 0;
  assert(!summed || epilogue.gelu == kernels::GeluForm::kNone);
  const Summed to = SummedTo(memory, summed, output, epilogue.residual);
  memory.device.Matmul({.rows = rows,
                        .columns = out_,
                        .inner = in_,
                        .a = WholeInput(memory, rows, input),
                        .b = memory.parameters + weight_,
                        .bias = bias_ < 0 || !adds ? nullptr : memory.parameters + bias_,
                        .residual = to.residual,
                        .c = to.product,
                        .groups = GroupsOf(memory, TensorSplit::kRows, in_runs_),
                        .gelu = epilogue.gelu,
                        .activated = epilogue.activated});
  if (summed) Sum(memory, rows, out_, output, epilogue.residual);
}

template <class T>
void LinearLayer<T>::Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output,
                              const T* input, T* d_input, const Epilogue& epilogue) const {
  const T* d_whole = WholeGradient(memory, rows, d_output);
  WeightProduct(memory, rows, d_whole, WholeInput(memory, rows, input));
  InputProduct(memory, rows, d_whole, d_input, epilogue);
}

template <class T>
void LinearLayer<T>::WeightGradient(const StageMemory<T>& memory, std::int64_t rows,
                                    const T* d_output, const T* input) const {
  WeightProduct(memory, rows, WholeGradient(memory, rows, d_output),
                WholeInput(memory, rows, input));
}

template <class T>
void LinearLayer<T>::InputGradient(const StageMemory<T>& memory, std::int64_t rows,
                                   const T* d_output, T* d_input, const Epilogue& epilogue) const {
  InputProduct(memory, rows, WholeGradient(memory, rows, d_output), d_input, epilogue);
}

template <class T>
void LinearLayer<T>::WeightProduct(const StageMemory<T>& memory, std::int64_t rows,
                                   const T* d_output, const T* input) const {
  LayerClock clock(memory.device, memory.times, &PassTimes::weight_gradients, LayerPart::kBlock,
                   nullptr);
  memory.device.WeightGradient({.rows = rows,
                                .in = in_,
                                .out = out_,
                                .input = input,
                                .d_output = d_output,
                                .d_weight = memory.gradients + weight_,
                                .d_bias = bias_ < 0 ? nullptr : memory.gradients + bias_});
}

template <class T>
void LinearLayer<T>::InputProduct(const StageMemory<T>& memory, std::int64_t rows,
                                  const T* d_output, T* d_input, const Epilogue& epilogue) const {
  const bool summed = split_ == TensorSplit::kColumns && memory.tensor.part.ranks > 1;
  assert(!summed || epilogue.gelu == kernels::GeluForm::kNone);
  const Summed to = SummedTo(memory, summed, d_input, epilogue.residual);
  memory.device.Matmul({.rows = rows,
                        .columns = in_,
                        .inner = out_,
                        .a = d_output,
                        .b = memory.parameters + weight_,
                        .transpose_b = true,
                        .residual = to.residual,
                        .c = to.product,
                        .groups = GroupsOf(memory, TensorSplit::kColumns, out_runs_),
                        .gelu = epilogue.gelu,
                        .gelu_input = epilogue.gelu_input});
  if (summed) Sum(memory, rows, in_, d_input, epilogue.residual);
}

template <class T>
NormLayer<T>::NormLayer(const ParameterLayout& layout, const std::string& name, double epsilon)
    : epsilon_(epsilon),
      columns_(WeightOf(layout, name).count),
      weight_(WeightOf(layout, name).offset),
      bias_(layout.OffsetOf(name + ".bias")) {
  assert(bias_ < 0 || bias_ == weight_ + columns_);
}

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
  // Of this rank's rows they are parts of a sum.
  const std::int64_t count = (bias_ < 0 ? 1 : 2) * columns_;
  kernels::Accumulator<T>*into = memory.gradients + weight_, *gradients = into;
  if (memory.SharesRows()) {
    gradients = memory.norm_gradients;
    memory.device.Clear(gradients, static_cast<std::size_t>(count) * sizeof(*gradients));
  }
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
      .d_weight = gradients,
      .d_bias = bias_ < 0 ? nullptr : gradients + columns_};
  bias_ < 0 ? memory.device.RmsNormBackward(arguments) : memory.device.LayerNormBackward(arguments);
  if (!memory.SharesRows()) return;
  memory.tensor.sum_gradients({gradients, static_cast<std::size_t>(count)});
  memory.device.AddInto(count, gradients, into);
}

ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template struct StageMemory)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class LinearLayer)
ADAPTIVE_TRAIN_FOR_EACH_SCALAR(template class NormLayer)

}  // namespace adaptive_train
