// Sparse gradients on the calling thread, in host memory: selection, and its way back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sparsify.h"

namespace adaptive_train::kernels::cpu {

/// Device::Select of floats.
Selected Select(const SelectArguments<float>& x);

/// Values of the elements whose bits are set in a bitmap, ascending, as messages have them:
/// float32, bfloat16, or bytes of a sign (bit 7) and how many sizes above number `smallest`.
/// Neither bitmap nor values need be aligned, and nothing past their ends is read.
struct ExpandArguments {
  std::int64_t count = 0;             // of elements
  const std::byte* bitmap = nullptr;  // bit i % 8 of byte i / 8; bits past the end are 0
  std::int64_t value_count = 0;       // of bits that are set
  const std::byte* values = nullptr;
  ValueFormat format = ValueFormat::kBFloat16;
  int smallest = 0;
  float* to = nullptr;
};

/// to[i] = the element's value, 0 where its bit is not set.
void Expand(const ExpandArguments& x);

/// to[i] += the same.
void AddExpanded(const ExpandArguments& x);

}  // namespace adaptive_train::kernels::cpu
