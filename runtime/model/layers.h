// The two layers with parameters that blocks and heads are made of: affine products and norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/device.h"
#include "runtime/model/parameter_layout.h"

namespace adaptive_train {

/// Where a stage computes and where its arenas begin, in the device's memory. All owned by the
/// caller.
template <class T>
struct StageMemory {
  kernels::Device<T>& device;
  const T* parameters;
  kernels::Accumulator<T>* gradients;
};

/// output[rows, out] = input[rows, in] weight[in, out] + bias[out], the bias where the layout has
/// one
template <class T>
class LinearLayer {
 public:
  /// `name` stands for the ranges name.weight and name.bias of the layout.
  LinearLayer(const ParameterLayout& layout, const std::string& name);

  /// What the product does on its way to memory, as kernels/matmul.h says.
  struct Epilogue {
    const T* residual = nullptr;
    kernels::GeluForm gelu = kernels::GeluForm::kNone;
    T* activated = nullptr;
    const T* gelu_input = nullptr;
  };
  void Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* output,
               const Epilogue& epilogue = {}) const;
  /// Adds to the gradients of weight and bias; overwrites d_input.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, const T* input,
                T* d_input, const Epilogue& epilogue = {}) const;

 private:
  std::int64_t in_, out_, weight_;
  std::int64_t bias_;  // -1: none
};

/// A layer norm, or an RMS norm where the layout has no bias for it. Owns the statistics that its
/// backward needs.
template <class T>
class NormLayer {
 public:
  NormLayer(const ParameterLayout& layout, const std::string& name, double epsilon,
            kernels::DeviceMemory& memory, std::int64_t max_rows);

  /// output may be input.
  void Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* output);
  /// Adds to the gradients of weight and bias. d_input is added to, or overwritten and then may be
  /// d_output.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, const T* input,
                T* d_input, bool accumulate) const;

  std::size_t bytes() const { return mean_.bytes() + reciprocal_std_.bytes(); }

 private:
  double epsilon_;
  std::int64_t columns_, weight_;
  std::int64_t bias_;  // -1: an RMS norm
  kernels::Buffer<kernels::Accumulator<T>> mean_, reciprocal_std_;
};

}  // namespace adaptive_train
