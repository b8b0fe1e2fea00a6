// Vectors of float32 over arrays of float, BFloat16 or Float16, and vector functions for
// operations.
//
// Highway compiles a file that includes this once for each instruction set and chooses at run time.
// Such a file first names itself in HWY_TARGET_INCLUDE and includes hwy/foreach_target.h. Code that
// uses this header stands between HWY_BEFORE_NAMESPACE() and HWY_AFTER_NAMESPACE() in namespace
// adaptive_train::kernels::cpu::HWY_NAMESPACE. Lambdas there need HWY_ATTR, or they are compiled
// for the oldest processor. Vectors may have no size known to the compiler, so they live in local
// variables, never in arrays or structs.

// This guard replaces #pragma once: the file is read once for each instruction set.
#if defined(ADAPTIVE_TRAIN_KERNELS_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ADAPTIVE_TRAIN_KERNELS_CPU_SIMD_INL_H
#undef ADAPTIVE_TRAIN_KERNELS_CPU_SIMD_INL_H
#else
#define ADAPTIVE_TRAIN_KERNELS_CPU_SIMD_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/gelu.h"
#include "kernels/scalar.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;  // the bits of Floats
using Words = hn::Vec<WordTag>;
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;  // as many 16-bit numbers as Floats has floats
using Halves = hn::Vec<HalfTag>;

HWY_INLINE std::size_t Lanes() { return hn::Lanes(FloatTag()); }
HWY_INLINE Floats Set(float value) { return hn::Set(FloatTag(), value); }
HWY_INLINE Floats Zero() { return hn::Zero(FloatTag()); }

/// How much of a vector to load or store: all of it, or only the first `count` lanes.
struct Whole {};
struct First {
  std::size_t count;
};

/// Calls body(i, part) for i = begin, begin + Lanes(), ... below end. `part` is Whole, or First for
/// a last vector with fewer lanes.
template <class Body>
HWY_INLINE void ForVectors(std::int64_t begin, std::int64_t end, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(i, Whole());
  if (i < end) body(i, First{static_cast<std::size_t>(end - i)});
}

template <class D>
HWY_INLINE hn::Vec<D> LoadPart(D tag, const hn::TFromD<D>* from, Whole) {
  return hn::LoadU(tag, from);
}
template <class D>
HWY_INLINE void StorePart(hn::Vec<D> vector, D tag, hn::TFromD<D>* to, Whole) {
  hn::StoreU(vector, tag, to);
}
// No byte beyond the part is touched: masked instructions are used where safe, otherwise a buffer
// on the stack.
#if HWY_MEM_OPS_MIGHT_FAULT
template <class D>
HWY_INLINE hn::Vec<D> LoadPart(D tag, const hn::TFromD<D>* from, First part) {
  HWY_ALIGN hn::TFromD<D> all[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(all, from, part.count * sizeof(*from));
  return hn::Load(tag, all);
}
template <class D>
HWY_INLINE void StorePart(hn::Vec<D> vector, D tag, hn::TFromD<D>* to, First part) {
  HWY_ALIGN hn::TFromD<D> all[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(vector, tag, all);
  std::memcpy(to, all, part.count * sizeof(*to));
}
#else
template <class D>
HWY_INLINE hn::Vec<D> LoadPart(D tag, const hn::TFromD<D>* from, First part) {
  return hn::MaskedLoad(hn::FirstN(tag, part.count), tag, from);
}
template <class D>
HWY_INLINE void StorePart(hn::Vec<D> vector, D tag, hn::TFromD<D>* to, First part) {
  hn::BlendedStore(vector, hn::FirstN(tag, part.count), tag, to);
}
#endif

/// Zeroes the lanes outside the part. Sums need this where loaded zeros do not stay zero.
HWY_INLINE Floats Keep(Floats x, Whole) { return x; }
HWY_INLINE Floats Keep(Floats x, First part) {
  return hn::IfThenElseZero(hn::FirstN(FloatTag(), part.count), x);
}

HWY_INLINE Floats FromBits(Words bits) { return hn::BitCast(FloatTag(), bits); }
HWY_INLINE Words ToBits(Floats x) { return hn::BitCast(WordTag(), x); }
HWY_INLINE Words SetBits(std::uint32_t bits) { return hn::Set(WordTag(), bits); }
HWY_INLINE Halves LowerHalves(Words words) { return hn::TruncateTo(HalfTag(), words); }

/// 16-bit formats to float32, exactly, and back with ties to even, like ToFloat and Rounded of
/// kernels/scalar.h.
HWY_INLINE Floats Decode(Halves halves, const BFloat16*) {
  return FromBits(hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), halves)));
}
HWY_INLINE Halves Encode(Floats x, const BFloat16*) {
  const Words bits = ToBits(x), upper = hn::ShiftRight<16>(bits);
  const Words rounded = hn::Add(hn::Add(bits, SetBits(0x7fff)), hn::And(upper, SetBits(1)));
  return LowerHalves(hn::IfThenElse(hn::RebindMask(WordTag(), hn::IsNaN(x)),
                                    hn::Or(upper, SetBits(0x40)), hn::ShiftRight<16>(rounded)));
}
#if (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4) || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
// No instruction converts here, and Highway's own code neither rounds to nearest nor handles
// infinity and NaN.
HWY_INLINE Floats Decode(Halves halves, const Float16*) {
  const Words bits = hn::PromoteTo(WordTag(), halves), magnitude = hn::And(bits, SetBits(0x7fff));
  const Words sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  // The exponent's bias grows from 15 to 127; a product also makes subnormal numbers normal.
  const Floats finite = hn::Mul(FromBits(hn::ShiftLeft<13>(magnitude)), Set(0x1p112F));
  const Words special = hn::Or(hn::ShiftLeft<13>(magnitude), SetBits(0x7f800000));
  const Words value = hn::IfThenElse(hn::Gt(magnitude, SetBits(0x7bff)), special, ToBits(finite));
  return FromBits(hn::Or(value, sign));
}
HWY_INLINE Halves Encode(Floats x, const Float16*) {
  const Words bits = ToBits(x), magnitude = hn::And(bits, SetBits(0x7fffffff));
  const Words sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const Words odd = hn::And(hn::ShiftRight<13>(magnitude), SetBits(1));
  const Words normal = hn::ShiftRight<13>(
      hn::Add(hn::Sub(magnitude, SetBits((127 - 15) << 23)), hn::Add(odd, SetBits(0xfff))));
  // Adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded.
  const Words subnormal =
      hn::Sub(ToBits(hn::Add(FromBits(magnitude), Set(0.5F))), SetBits(0x3f000000));
  Words value = hn::IfThenElse(hn::Lt(magnitude, SetBits(0x38800000)), subnormal, normal);
  value = hn::IfThenElse(hn::Gt(magnitude, SetBits(0x477fffff)), SetBits(0x7c00), value);
  value = hn::IfThenElse(hn::Gt(magnitude, SetBits(0x7f800000)), SetBits(0x7e00), value);
  return LowerHalves(hn::Or(value, sign));
}
#else
HWY_INLINE Floats Decode(Halves halves, const Float16*) {
  return hn::PromoteTo(FloatTag(), hn::BitCast(hn::Rebind<hwy::float16_t, FloatTag>(), halves));
}
HWY_INLINE Halves Encode(Floats x, const Float16*) {
  return hn::BitCast(HalfTag(), hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatTag>(), x));
}
#endif

/// Loads from unaligned memory; lanes beyond a First part are 0.
template <class Part = Whole>
HWY_INLINE Floats Load(const float* from, Part part = {}) {
  return LoadPart(FloatTag(), from, part);
}
template <class T, class Part = Whole>
HWY_INLINE Floats Load(const T* from, Part part = {}) {
  return Decode(LoadPart(HalfTag(), &from->bits, part), from);
}
/// Stores to unaligned memory, rounding to T.
template <class Part = Whole>
HWY_INLINE void Store(Floats x, float* to, Part part = {}) {
  StorePart(x, FloatTag(), to, part);
}
template <class T, class Part = Whole>
HWY_INLINE void Store(Floats x, T* to, Part part = {}) {
  StorePart(Encode(x, to), HalfTag(), &to->bits, part);
}

/// The sum of a vector's lanes, always in the same order.
HWY_INLINE float SumOf(Floats x) { return hn::GetLane(hn::SumOfLanes(FloatTag(), x)); }
HWY_INLINE float LargestOf(Floats x) { return hn::GetLane(hn::MaxOfLanes(FloatTag(), x)); }

/// The sum of term(i, part) over [0, count) and all lanes; `part` is as in ForVectors. Four sums
/// run side by side, since an addition takes longer than loading its operands. Their order depends
/// on the count alone.
template <class Term>
HWY_INLINE float SumOf(std::int64_t count, const Term& term) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  Floats s0 = Zero(), s1 = Zero(), s2 = Zero(), s3 = Zero();
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, term(i, Whole()));
    s1 = hn::Add(s1, term(i + lanes, Whole()));
    s2 = hn::Add(s2, term(i + 2 * lanes, Whole()));
    s3 = hn::Add(s3, term(i + 3 * lanes, Whole()));
  }
  for (; i + lanes <= count; i += lanes) s0 = hn::Add(s0, term(i, Whole()));
  if (i < count) s1 = hn::Add(s1, term(i, First{static_cast<std::size_t>(count - i)}));
  return SumOf(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

/// exp(x) to within 2 units in the last place: infinity above 88.72, 0 where the result would be
/// subnormal (below -87.33), NaN kept. exp(x) = 2^n exp(r) with |r| <= ln(2)/2, and exp(r) is the
/// minimax polynomial 1 + r + r^2 q(r).
HWY_INLINE Floats Exp(Floats x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const Floats rounder = Set(12582912.0F), rounded = hn::MulAdd(x, Set(1.44269504F), rounder);
  const Floats n = hn::Sub(rounded, rounder);
  // ln 2 in two parts: n times the first is exact.
  const Floats r = hn::NegMulAdd(n, Set(-2.12194440e-4F), hn::NegMulAdd(n, Set(0.693359375F), x));
  Floats q = hn::MulAdd(Set(1.39262134663e-3F), r, Set(8.36320297158e-3F));
  q = hn::MulAdd(q, r, Set(4.16665544377e-2F));
  q = hn::MulAdd(q, r, Set(1.66665768460e-1F));
  q = hn::MulAdd(q, r, Set(0.5F));
  const Floats series = hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), Set(1));
  const Floats power = FromBits(hn::Add(ToBits(series), hn::ShiftLeft<23>(ToBits(rounded))));
  const Floats above = hn::Add(x, FromBits(SetBits(0x7f800000)));  // infinity, or NaN for NaN
  return hn::IfThenElse(hn::Lt(x, Set(-87.3365F)), Zero(),
                        hn::IfThenElse(hn::Le(x, Set(88.722832F)), power, above));
}

/// 1 / (1 + exp(-x)), to a few units in the last place.
HWY_INLINE Floats Sigmoid(Floats x) { return hn::Div(Set(1), hn::Add(Set(1), Exp(hn::Neg(x)))); }

/// x / (1 + exp(-x)) and its derivative.
HWY_INLINE Floats Silu(Floats x) { return hn::Div(x, hn::Add(Set(1), Exp(hn::Neg(x)))); }
HWY_INLINE Floats SiluDerivative(Floats x) {
  const Floats s = Sigmoid(x);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(Set(1), s), Set(1)));
}

/// x clamped to [-limit, limit]; NaN kept.
HWY_INLINE Floats Within(Floats x, float limit) {
  return hn::IfThenElse(hn::Gt(hn::Abs(x), Set(limit)), hn::CopySign(Set(limit), x), x);
}

/// exp(-x^2 / 2), which is sqrt(2 pi) times the standard normal density.
HWY_INLINE Floats Bell(Floats x) { return Exp(hn::Mul(hn::Mul(Set(-0.5F), x), x)); }

/// The standard normal distribution function at x, given bell = Bell(x), to within 2e-7; in the
/// lower tail that error is relative. With t = |x| / sqrt(2), erfc(t) exp(t^2) is a minimax
/// polynomial of z = 1 / (1 + 0.4 t).
HWY_INLINE Floats NormalCdf(Floats x, Floats bell) {
  const Floats z = hn::Div(Set(1), hn::MulAdd(Set(0.28284271F), hn::Abs(x), Set(1)));
  Floats p = hn::MulAdd(Set(0.0376194540746F), z, Set(-0.12301348805F));
  p = hn::MulAdd(p, z, Set(0.0490449003915F));
  p = hn::MulAdd(p, z, Set(0.126921825187F));
  p = hn::MulAdd(p, z, Set(0.0535990076173F));
  p = hn::MulAdd(p, z, Set(0.204195073989F));
  p = hn::MulAdd(p, z, Set(0.199214643409F));
  p = hn::MulAdd(p, z, Set(0.226804875143F));
  p = hn::MulAdd(p, z, Set(0.225613743713F));
  const Floats tail = hn::Mul(hn::Mul(Set(0.5F), bell), hn::Mul(p, z));
  return hn::IfThenElse(hn::Gt(x, Zero()), hn::Sub(Set(1), tail), tail);
}

/// The forms of kernels/gelu.h and their derivatives, to about 2e-7 relative to the larger of 1 and
/// the value. The tanh form is computed as x sigmoid(2 u), since (1 + tanh(u)) / 2 = 1 / (1 +
/// exp(-2 u)).
template <GeluForm kForm>
HWY_INLINE Floats Gelu(Floats x) {
  if constexpr (kForm == GeluForm::kTanh) {
    const Floats slope =
        hn::MulAdd(Set(static_cast<float>(-2 * kGeluRootTwoOverPi * kGeluCubic)), hn::Mul(x, x),
                   Set(static_cast<float>(-2 * kGeluRootTwoOverPi)));
    return hn::Div(x, hn::Add(Set(1), Exp(hn::Mul(slope, x))));
  } else {
    static_assert(kForm == GeluForm::kErf);
    return hn::Mul(x, NormalCdf(x, Bell(x)));
  }
}
template <GeluForm kForm>
HWY_INLINE Floats GeluDerivative(Floats x) {
  if constexpr (kForm == GeluForm::kTanh) {
    // Beyond 10 the sigmoid is 0 or 1 in float32; within, no power of x and no exponential
    // overflows.
    x = Within(x, 10);
    const Floats x2 = hn::Mul(x, x);
    const Floats slope = hn::MulAdd(Set(static_cast<float>(-2 * kGeluRootTwoOverPi * kGeluCubic)),
                                    x2, Set(static_cast<float>(-2 * kGeluRootTwoOverPi)));
    const Floats d_slope = hn::MulAdd(Set(static_cast<float>(6 * kGeluRootTwoOverPi * kGeluCubic)),
                                      x2, Set(static_cast<float>(2 * kGeluRootTwoOverPi)));
    const Floats power = Exp(hn::Mul(slope, x)), s = hn::Div(Set(1), hn::Add(Set(1), power));
    // s + x s (1 - s) 2 u', where 1 - s = power * s.
    return hn::MulAdd(hn::Mul(hn::Mul(x, d_slope), hn::Mul(power, s)), s, s);
  } else {
    static_assert(kForm == GeluForm::kErf);
    x = Within(x, 14);
    const Floats bell = Bell(x);
    return hn::MulAdd(hn::Mul(x, Set(0.39894228F)), bell, NormalCdf(x, bell));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
