// Selection of sparse gradients and its inverse, on the calling thread in host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sparsify.h"

namespace adaptive_train::kernels::cpu {

/// Device::Select of floats.
Selected Select(const SelectArguments<float>& x);

/// Values of the elements whose bits are set in a bitmap, ascending, as in messages: float32,
/// bfloat16, or bytes. A byte is a sign (bit 7) and the size's number relative to `smallest`.
/// Neither the bitmap nor the values need be aligned, and nothing past their ends is read.
struct ExpandArguments {
  std::int64_t count = 0;             // number of elements
  const std::byte* bitmap = nullptr;  // bit i % 8 of byte i / 8; bits past the end are 0
  std::int64_t value_count = 0;       // number of set bits
  const std::byte* values = nullptr;
  ValueFormat format = ValueFormat::kBFloat16;
  int smallest = 0;
  float* to = nullptr;
};

/// to[i] = the element's value, or 0 if its bit is not set.
void Expand(const ExpandArguments& x);

/// to[i] += the element's value.
void AddExpanded(const ExpandArguments& x);

}  // namespace adaptive_train::kernels::cpu
