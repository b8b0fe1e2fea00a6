// Stands for the file of this name in kernels/cuda: the matrix units' work on the host. Lanes exchange
// what the units take from all of them.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cmath>

#include "kernels/cuda/elements.h"

namespace adaptive_train::kernels::cuda {

using LeftFragment = unsigned[4];
using RightFragment = unsigned[2];
using SumFragment = float[4];

namespace emulated {

inline constexpr unsigned kAll = 0xffffffff;
using OfLanes = std::array<std::uint64_t, 32>;

inline OfLanes Exchange(std::uint64_t value) {
  OfLanes values;
  std::copy_n(emulated_cuda::ExchangeInWarp(kAll, value), 32, values.begin());
  return values;
}
template <class T>
float Half(std::uint64_t word, int half) {
  return Wide(T{static_cast<std::uint16_t>(word >> (16 * half))});
}

inline void Load(const void* row, unsigned (&to)[4], bool transposed) {
  const OfLanes rows = Exchange(emulated_cuda::ToWord(row));
  const unsigned lane = emulated_cuda::Lane(), group = lane / 4, pair = lane % 4;
  const auto at = [&](unsigned matrix, unsigned line, unsigned column) {
    std::uint16_t value;
    std::memcpy(&value,
                emulated_cuda::FromWord<const std::byte*>(rows[8 * matrix + line]) + 2 * column, 2);
    return static_cast<unsigned>(value);
  };
  for (unsigned m = 0; m < 4; ++m)
    to[m] = transposed ? at(m, 2 * pair, group) | at(m, 2 * pair + 1, group) << 16
                       : at(m, group, 2 * pair) | at(m, group, 2 * pair + 1) << 16;
}

}  // namespace emulated

template <class T>
void MultiplyAdd(const LeftFragment& a, const RightFragment& b, const SumFragment& c,
                 SumFragment& d) {
  using emulated::Exchange, emulated::Half;
  const auto low = Exchange(a[0] | std::uint64_t{a[1]} << 32),
             high = Exchange(a[2] | std::uint64_t{a[3]} << 32),
             right = Exchange(b[0] | std::uint64_t{b[1]} << 32);
  const unsigned lane = emulated_cuda::Lane(), row = lane / 4, pair = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    float sum = c[i];
    const unsigned column = 2 * pair + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned of_a = 4 * row + k % 8 / 2, of_b = 4 * column + k % 8 / 2;
      const int half = static_cast<int>(k % 2);
      const std::uint64_t left = (k < 8 ? low : high)[of_a];
      sum += Half<T>(left, half + 2 * static_cast<int>(i / 2)) *
             Half<T>(right[of_b], half + 2 * static_cast<int>(k / 8));
    }
    d[i] = sum;
  }
}

inline void LoadMatrices(const void* row, unsigned (&to)[4]) { emulated::Load(row, to, false); }
inline void LoadTransposed(const void* row, unsigned (&to)[4]) { emulated::Load(row, to, true); }

inline void BeginCopy(void* to, const void* from, bool inside) {
  if (inside) {
    std::memcpy(to, from, 16);
  } else {
    std::memset(to, 0, 16);
  }
}
inline void BeginCopy(float* to, const float* from, bool inside) { *to = inside ? *from : 0; }
inline void WaitForCopies() {}

template <class T>
unsigned Pack(float low, float high) {
  return Narrow<T>(low).bits | static_cast<unsigned>(Narrow<T>(high).bits) << 16;
}

inline float PowerOfTwo(float x) { return x < -126 ? 0 : std::exp2(x); }

}  // namespace adaptive_train::kernels::cuda
