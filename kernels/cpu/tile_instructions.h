// The instructions that tile_product.cc is written in: those of a matrix unit, those of vectors of
// bfloat16 numbers, and those that fill tiles. A test puts emulated ones of the same names in this
// header's place.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hwy/targets.h>

#define ADAPTIVE_TRAIN_TILES
// Functions are compiled for their instructions one by one: nothing of the standard library's that
// they call may be, since the linker could take it for all processors. Processors with the unit
// have the vectors too.
#define TILE_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define AMX_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")))

namespace adaptive_train::kernels::cpu {

using Floats = __m512;
using Words = __m512i;   // 16 of 32 bits
using Halves = __m256i;  // 16 of 16 bits
using Mask = __mmask16;
using Pairs = __m512bh;  // 16 pairs of bfloat16

TILE_TARGET inline Pairs AsPairs(Words words) { return reinterpret_cast<Pairs>(words); }
TILE_TARGET inline Halves AsHalves(__m256bh numbers) { return reinterpret_cast<Halves>(numbers); }

/// Whether the processor has them and the operating system lets programs use them.
inline bool ProcessorHasPairs() { return __builtin_cpu_supports("avx512bf16") != 0; }

/// Leaf 7 of cpuid: the processor's side of it.
inline bool ProcessorHasAmx() {
  constexpr unsigned kBFloat16 = 1u << 22, kTiles = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & (kBFloat16 | kTiles)) == (kBFloat16 | kTiles);
}

/// Linux keeps the tiles' 8 KiB for processes that ask for them
/// (Documentation/arch/x86/xstate.rst).
inline bool KernelGrantsTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Whether Highway may use all that the processor has: nothing is compiled for this set, so that no
/// test chooses it alone.
inline bool Unrestricted() { return (hwy::SupportedTargets() & HWY_SSSE3) != 0; }

inline bool VectorsAvailable() {
  static const bool there = ProcessorHasPairs();
  return there && Unrestricted();
}

inline bool MatrixUnitAvailable() {
  static const bool granted = ProcessorHasPairs() && ProcessorHasAmx() && KernelGrantsTiles();
  return granted && Unrestricted();
}

}  // namespace adaptive_train::kernels::cpu
#endif
