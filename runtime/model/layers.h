// The two layers with parameters that blocks and the head are made of: affine products and norms.
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
  T* gradients;
};

/// output[rows, out] = input[rows, in] weight[in, out] + bias[out]
template <class T>
class LinearLayer {
 public:
  /// `name` stands for the ranges name.weight and name.bias of the layout.
  LinearLayer(const ParameterLayout& layout, const std::string& name);

  void Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* output) const;
  /// Adds to the gradients of weight and bias; overwrites d_input.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, const T* input,
                T* d_input) const;

 private:
  std::int64_t in_, out_, weight_, bias_;
};

/// A layer norm that owns its output and what its backward needs.
template <class T>
class NormLayer {
 public:
  NormLayer(const ParameterLayout& layout, const std::string& name, kernels::DeviceMemory& memory,
            std::int64_t max_rows);

  void Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input);
  const T* output() const { return output_.data(); }
  /// Adds to the gradients of weight and bias, and to d_input.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, const T* input,
                T* d_input) const;

  std::size_t activation_bytes() const {
    return output_.bytes() + mean_.bytes() + reciprocal_std_.bytes();
  }

 private:
  std::int64_t columns_, weight_, bias_;
  kernels::Buffer<T> output_, mean_, reciprocal_std_;
};

}  // namespace adaptive_train
