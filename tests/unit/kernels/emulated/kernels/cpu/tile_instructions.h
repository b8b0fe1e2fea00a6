// In the place of kernels/cpu/tile_instructions.h: the same instructions in plain C++, by Intel's
// Intrinsics Guide, for any processor. There is a matrix unit if it is
// the ADAPTIVE_TRAIN_TESTED_UNIT.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <hwy/targets.h>

#include "kernels/cpu/tile_product.h"
#include "kernels/scalar.h"
#include "tests/unit/kernels/emulated_tiles.h"

#define ADAPTIVE_TRAIN_TILES
#define TILE_TARGET
#define AMX_TARGET

namespace adaptive_train::kernels::cpu {

using Floats = std::array<float, 16>;
using Words = std::array<std::uint32_t, 16>;
using Halves = std::array<std::uint16_t, 16>;
using Mask = std::uint16_t;
using Pairs = Words;

inline Pairs AsPairs(const Words& words) { return words; }
inline Halves AsHalves(const Halves& numbers) { return numbers; }

/// Unless a test asks for one instruction set alone.
inline bool VectorsAvailable() {
  return std::popcount(static_cast<std::uint64_t>(hwy::SupportedTargets())) > 1;
}
inline bool MatrixUnitAvailable() {
  return VectorsAvailable() && TileUnit::ADAPTIVE_TRAIN_TESTED_UNIT == TileUnit::kMatrix;
}

/// Lanes without their bit of the mask are 0, and are not read.
template <class Lanes>
Lanes MaskedLoad(Mask mask, const void* from) {
  Lanes lanes{};
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    constexpr std::size_t kBytes = sizeof(lanes[0]);
    if (((mask >> i) & 1) != 0)
      std::memcpy(&lanes[i], static_cast<const char*>(from) + i * kBytes, kBytes);
  }
  return lanes;
}
inline Floats _mm512_maskz_loadu_ps(Mask mask, const void* from) {
  return MaskedLoad<Floats>(mask, from);
}
inline Halves _mm256_maskz_loadu_epi16(Mask mask, const void* from) {
  return MaskedLoad<Halves>(mask, from);
}

template <class To, class From, class Lane>
To EachLane(const From& from, const Lane& lane) {
  To to;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = lane(from[i]);
  return to;
}
inline Floats _mm512_cvtph_ps(const Halves& a) {
  return EachLane<Floats>(a, [](std::uint16_t bits) { return ToFloat(Float16{bits}); });
}
inline Words _mm512_cvtepu16_epi32(const Halves& a) {
  return EachLane<Words>(a, [](std::uint16_t bits) { return std::uint32_t{bits}; });
}
inline Words _mm512_castps_si512(const Floats& a) { return std::bit_cast<Words>(a); }
inline Floats _mm512_castsi512_ps(const Words& a) { return std::bit_cast<Floats>(a); }
/// To the nearest even; what is subnormal counts as zero.
inline Halves _mm512_cvtneps_pbh(const Floats& a) {
  return EachLane<Halves>(a, [](float x) {
    const bool zero = std::abs(x) < std::numeric_limits<float>::min();
    return zero ? static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 31 << 15)
                : Rounded<BFloat16>(x).bits;
  });
}
inline Words _mm512_slli_epi32(const Words& a, unsigned bits) {
  return EachLane<Words>(a, [bits](std::uint32_t x) { return x << bits; });
}
inline Words _mm512_srli_epi32(const Words& a, unsigned bits) {
  return EachLane<Words>(a, [bits](std::uint32_t x) { return x >> bits; });
}
inline Words _mm512_set1_epi32(int a) {
  Words all;
  all.fill(static_cast<std::uint32_t>(a));
  return all;
}

template <class Lanes, class Operation>
Lanes LaneByLane(const Lanes& a, const Lanes& b, const Operation& operation) {
  Lanes to;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = operation(a[i], b[i]);
  return to;
}
inline Words _mm512_add_epi32(const Words& a, const Words& b) {
  return LaneByLane(a, b, [](std::uint32_t x, std::uint32_t y) { return x + y; });
}
inline Words _mm512_and_si512(const Words& a, const Words& b) {
  return LaneByLane(a, b, [](std::uint32_t x, std::uint32_t y) { return x & y; });
}
inline Words _mm512_or_si512(const Words& a, const Words& b) {
  return LaneByLane(a, b, [](std::uint32_t x, std::uint32_t y) { return x | y; });
}
inline Floats _mm512_sub_ps(const Floats& a, const Floats& b) {
  return LaneByLane(a, b, [](float x, float y) { return x - y; });
}

inline Floats _mm512_setzero_ps() { return {}; }
inline Floats _mm512_loadu_ps(const void* from) { return MaskedLoad<Floats>(0xffff, from); }
inline void _mm512_storeu_ps(void* to, const Floats& a) { std::memcpy(to, a.data(), sizeof a); }

/// Both products of a pair are added one after the other, the second number's first.
inline Floats _mm512_dpbf16_ps(const Floats& sums, const Pairs& a, const Pairs& b) {
  const auto first = [](std::uint32_t pair) { return std::bit_cast<float>(pair << 16); };
  const auto second = [](std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); };
  Floats to;
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = FusedSum(first(a[i]), first(b[i]), FusedSum(second(a[i]), second(b[i]), sums[i]));
  return to;
}

/// A processor ends the program where such an address is no multiple of 64.
inline void RequireAligned(const void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % 64 == 0) return;
  std::fputs("a vector's address is no multiple of 64\n", stderr);
  std::abort();
}
inline Words _mm512_load_si512(const void* from) {
  RequireAligned(from);
  return MaskedLoad<Words>(0xffff, from);
}
inline void _mm512_store_si512(void* to, const Words& a) {
  RequireAligned(to);
  std::memcpy(to, a.data(), sizeof a);
}

/// Of each 128 bits, `kWords` words of a and of b in turn, from word `from` on.
template <std::size_t kWords>
Words Unpacked(const Words& a, const Words& b, std::size_t from) {
  Words to;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t of_b = i / kWords % 2,
                      place = i / 4 * 4 + from + i % 4 / (2 * kWords) * kWords;
    to[i] = (of_b != 0 ? b : a)[place + i % kWords];
  }
  return to;
}
inline Words _mm512_unpacklo_epi32(const Words& a, const Words& b) { return Unpacked<1>(a, b, 0); }
inline Words _mm512_unpackhi_epi32(const Words& a, const Words& b) { return Unpacked<1>(a, b, 2); }
inline Words _mm512_unpacklo_epi64(const Words& a, const Words& b) { return Unpacked<2>(a, b, 0); }
inline Words _mm512_unpackhi_epi64(const Words& a, const Words& b) { return Unpacked<2>(a, b, 2); }
/// Two quarters of a, then two of b, chosen by two bits each.
inline Words _mm512_shuffle_i32x4(const Words& a, const Words& b, unsigned control) {
  Words to;
  for (std::size_t i = 0; i < 16; ++i)
    to[i] = (i < 8 ? a : b)[((control >> (i / 4 * 2)) & 3) * 4 + i % 4];
  return to;
}

inline void _tile_loadconfig(const void* config) {
  EmulatedTiles::OfThisThread().LoadConfig(config);
}
inline void _tile_release() { EmulatedTiles::OfThisThread().Release(); }
inline void _tile_zero(int tile) { EmulatedTiles::OfThisThread().Zero(tile); }
inline void _tile_loadd(int tile, const void* from, std::ptrdiff_t stride_bytes) {
  EmulatedTiles::OfThisThread().Load(tile, from, stride_bytes);
}
inline void _tile_stored(int tile, void* to, std::ptrdiff_t stride_bytes) {
  EmulatedTiles::OfThisThread().Store(tile, to, stride_bytes);
}
inline void _tile_dpbf16ps(int sums, int first, int second) {
  EmulatedTiles::OfThisThread().AddProducts(sums, first, second);
}

}  // namespace adaptive_train::kernels::cpu
