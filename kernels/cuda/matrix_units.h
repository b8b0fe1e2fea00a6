// What a warp does on the matrix units of compute capability 8.0 and later, and how tiles come to
// it. Layouts of fragments are those of PTX's mma.m16n8k16 and ldmatrix. Only .cu files include it.
// Tests have another file of this name, which computes the same on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels::cuda {

// With row = lane / 4 and pair = lane % 4, a lane has, two 16-bit numbers a word, the lower first:
/// of a [16, 16]: rows row, row + 8, row, row + 8, at columns 2 pair (twice), 2 pair + 8 (twice);
using LeftFragment = unsigned[4];
/// of b [16, 8]: column row, at rows 2 pair and 2 pair + 8;
using RightFragment = unsigned[2];
/// of c [16, 8]: row row at columns 2 pair and 2 pair + 1, then row row + 8 at the same.
using SumFragment = float[4];

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/// d = a b + c, in float32.
template <class T>
__device__ void MultiplyAdd(const LeftFragment& a, const RightFragment& b, const SumFragment& c,
                            SumFragment& d) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  }
}

__device__ inline unsigned SharedAddress(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

/// Four [8, 8] matrices of 16-bit numbers in shared memory. Lane i gives row i % 8 of matrix i / 8,
/// and gets of each matrix its row lane / 4 at columns 2 (lane % 4) and one more.
__device__ inline void LoadMatrices(const void* row, unsigned (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row))
               : "memory");
}
/// The same of the matrices' transposes.
__device__ inline void LoadTransposed(const void* row, unsigned (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(SharedAddress(row))
               : "memory");
}

/// Begins to copy 16 bytes to shared memory, zeros where they are not `inside`. Both are aligned.
__device__ inline void BeginCopy(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
/// The same of one number of 4 bytes.
__device__ inline void BeginCopy(float* to, const float* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(inside ? 4 : 0)
               : "memory");
}
/// Returns when all copies that the thread began have arrived. Others see them after a barrier.
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Both in T, `low` in the lower half, rounded to nearest even.
template <class T>
__device__ unsigned Pack(float low, float high) {
  unsigned packed;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

/// 2^x to two units in the last place; results below 2^-126 are 0.
__device__ inline float PowerOfTwo(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

#else  // for GPUs without such units, which are never asked

template <class T>
__device__ void MultiplyAdd(const LeftFragment&, const RightFragment&, const SumFragment&,
                            SumFragment&) {
  __trap();
}
__device__ inline void LoadMatrices(const void*, unsigned (&)[4]) { __trap(); }
__device__ inline void LoadTransposed(const void*, unsigned (&)[4]) { __trap(); }
__device__ inline void BeginCopy(void*, const void*, bool) { __trap(); }
__device__ inline void BeginCopy(float*, const float*, bool) { __trap(); }
__device__ inline void WaitForCopies() {}
template <class T>
__device__ unsigned Pack(float, float) {
  return 0;
}
__device__ inline float PowerOfTwo(float x) { return x; }

#endif

}  // namespace adaptive_train::kernels::cuda
