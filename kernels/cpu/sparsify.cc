// Selection with error feedback in one pass, and its threshold from a histogram of sizes. All of it
// runs on the calling thread, which also communicates.
#include "kernels/sparsify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/sparse.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparsify.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kBlock = 64;  // elements per word of the bitmap

/// The sizes of floats are ordered like their bits without the sign.
HWY_INLINE Words SizeBits(Floats x) { return ToBits(hn::Abs(x)); }

/// A value of format kFloat8 as it is stored: the bits of a bfloat16.
struct Float8 {
  std::uint16_t bits;
};

/// Values that the whole pass keeps in registers.
struct Pass {
  float threshold;
  float decay;
  std::uint32_t smallest, largest;  // of kFloat8's sizes, as a float's bits
};

/// e rounded to the format of the values. NaN is never sent, so its result does not matter.
HWY_INLINE Floats AsSent(Floats e, const Pass&, const float*) { return e; }
HWY_INLINE Floats AsSent(Floats e, const Pass& pass, const Float8*) {
  const Words half = SetBits(1U << (kFloat8Shift - 1)), kept = SetBits(~0U << kFloat8Shift);
  const Words nearest = hn::And(hn::Add(SizeBits(e), half), kept);
  const Words size = hn::Min(hn::Max(nearest, SetBits(pass.smallest)), SetBits(pass.largest));
  return FromBits(hn::Or(size, hn::And(ToBits(e), SetBits(0x80000000))));
}
HWY_INLINE Floats AsSent(Floats e, const Pass&, const BFloat16*) {
  const Words bits = ToBits(e), odd = hn::And(hn::ShiftRight<16>(bits), SetBits(1));
  const Words rounded = hn::Add(bits, hn::Add(odd, SetBits(0x7fff)));
  return FromBits(hn::And(rounded, SetBits(0xffff0000)));
}

/// The positions of a byte's set bits, lowest first. Highway's table is local to a function, and
/// compilers copy it to the stack for each vector.
constexpr auto kPlaces = [] {
  std::array<std::array<std::uint8_t, 8>, 256> places{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::size_t next = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      if ((byte >> bit & 1U) != 0) places[byte][next++] = static_cast<std::uint8_t>(bit);
    }
  }
  return places;
}();

/// Moves the selected lanes to the front, in order.
template <class Mask>
HWY_INLINE Words Compressed(Words words, Mask selected, std::size_t bits) {
  if constexpr (hn::MaxLanes(WordTag()) > 8) {  // AVX-512 has an instruction for it
    return hn::Compress(words, hn::RebindMask(WordTag(), selected));
  } else {
    const hn::Rebind<std::uint8_t, WordTag> bytes;
    const Words places = hn::PromoteTo(WordTag(), hn::LoadU(bytes, kPlaces[bits].data()));
    return hn::TableLookupLanes(words, hn::IndicesFromVec(WordTag(), places));
  }
}

/// Stores values in their format; the words hold them as float bits.
HWY_INLINE void StoreValues(Words sent, float* to) { Store(FromBits(sent), to); }
template <class Half>
HWY_INLINE void StoreValues(Words sent, Half* to) {
  StorePart(LowerHalves(hn::ShiftRight<16>(sent)), HalfTag(), &to->bits, Whole());
}

/// Selects from one block, appends to `values`, advances it, and returns the bitmap's word.
/// `largest` grows to the largest size seen.
template <bool kFeedback, class E>
HWY_INLINE std::uint64_t SelectBlock(const float* gradients, float* residuals, Pass pass,
                                     E*& values, Words& largest) {
  const Floats threshold = Set(pass.threshold), decay = Set(pass.decay);
  const auto lanes = static_cast<std::int64_t>(Lanes());
  std::uint64_t word = 0;
  for (std::int64_t i = 0; i < kBlock; i += lanes) {
    Floats e = Load(gradients + i), old = hn::Zero(FloatTag());
    if constexpr (kFeedback) {
      old = Load(residuals + i);
      e = hn::Add(e, old);
    }
    const auto selected = hn::Ge(hn::Abs(e), threshold);
    largest = hn::Max(largest, SizeBits(e));
    const Floats sent = AsSent(e, pass, values);
    std::uint8_t bytes[8] = {};  // Highway reads 8; 16 lanes fill two
    hn::StoreMaskBits(FloatTag(), selected, bytes);
    const std::uint64_t bits = std::uint64_t{bytes[0]} | std::uint64_t{bytes[1]} << 8;
    word |= bits << i;
    // Stores a whole vector; the next one overwrites the surplus.
    StoreValues(Compressed(ToBits(sent), selected, bits), values);
    values += std::popcount(bits);
    if constexpr (kFeedback) {
      const Floats unsent = hn::Sub(e, hn::IfThenElseZero(selected, sent));
      Store(hn::Sub(unsent, hn::Mul(decay, old)), residuals + i);
    }
  }
  return word;
}

/// Handles the last, shorter block in a copy on the stack, padded with zeros behind all others.
template <bool kFeedback, class E>
HWY_INLINE std::uint64_t SelectRest(std::int64_t count, const float* gradients, float* residuals,
                                    Pass pass, E*& values, Words& largest) {
  float some_gradients[kBlock] = {}, some_residuals[kBlock] = {};
  E some_values[kBlock];
  std::copy(gradients, gradients + count, some_gradients);
  if constexpr (kFeedback) std::copy(residuals, residuals + count, some_residuals);
  E* end = some_values;
  const std::uint64_t word =
      SelectBlock<kFeedback>(some_gradients, some_residuals, pass, end, largest) &
      ((std::uint64_t{1} << count) - 1);
  values = std::copy(some_values, some_values + std::popcount(word), values);
  if constexpr (kFeedback) std::copy(some_residuals, some_residuals + count, residuals);
  return word;
}

/// The largest finite size that rounds to a finite value.
constexpr std::uint32_t kInfinity = 0x7f800000;
constexpr std::uint32_t LargestSent(const float*) { return kInfinity - 1; }
constexpr std::uint32_t LargestSent(const Float8*) { return kInfinity - 1; }
constexpr std::uint32_t LargestSent(const BFloat16*) { return kInfinity - 0x8001; }

template <bool kFeedback, class E>
Selected SelectAs(const SelectArguments<float>& x, Pass pass, E* const values) {
  Words largest = hn::Zero(WordTag());
  E* end = values;
  std::int64_t i = 0;
  float* residuals = x.residuals;
  for (; i + kBlock <= x.count; i += kBlock) {
    x.bitmap[i / kBlock] = SelectBlock<kFeedback>(x.gradients + i, residuals, pass, end, largest);
    if constexpr (kFeedback) residuals += kBlock;
  }
  if (i < x.count) {
    x.bitmap[i / kBlock] =
        SelectRest<kFeedback>(x.count - i, x.gradients + i, residuals, pass, end, largest);
  }
  const std::uint32_t size = hn::GetLane(hn::MaxOfLanes(WordTag(), largest));
  const bool sent = std::bit_cast<float>(size) >= pass.threshold;
  return {end - values, size < kInfinity && (!sent || size <= LargestSent(values))};
}

Selected SelectFloats(const SelectArguments<float>& x) {
  // The smallest float that is not below the threshold selects the same floats.
  auto threshold = static_cast<float>(x.threshold);
  if (static_cast<double>(threshold) < x.threshold) {
    threshold = std::nextafter(threshold, std::numeric_limits<float>::infinity());
  }
  const auto smallest = static_cast<std::uint32_t>(SmallestSize(x.threshold));
  const Pass pass{threshold, static_cast<float>(1 - x.keep), smallest << kFloat8Shift,
                  (smallest + kFloat8Sizes - 1) << kFloat8Shift};
  const auto with = [&](auto* values) HWY_ATTR {
    return x.residuals != nullptr ? SelectAs<true>(x, pass, values)
                                  : SelectAs<false>(x, pass, values);
  };
  switch (x.format) {
    case ValueFormat::kFloat32:
      return with(static_cast<float*>(x.values));
    case ValueFormat::kFloat8:
      return with(static_cast<Float8*>(x.values));
    case ValueFormat::kInt4:
    case ValueFormat::kBFloat16:
      break;
  }
  return with(static_cast<BFloat16*>(x.values));
}

/// A bin of sizes is the leading 16 bits: exponent and 8 bits of the fraction. Neighbours are often
/// alike and count in different columns, since an addition to memory waits for the one before it.
constexpr int kBinBits = 16, kColumnBits = 1;
constexpr int kUncountedBits = 31 - kBinBits;

HWY_INLINE std::size_t LanesOf(Whole) { return Lanes(); }
HWY_INLINE std::size_t LanesOf(First part) { return part.count; }

void CountSizes(const ThresholdArguments<float>& x, std::uint32_t* counts) {
  const Words column = hn::And(hn::Iota(WordTag(), 0), SetBits((1U << kColumnBits) - 1));
  const float* gradients = x.gradients;
  const float* residuals = x.residuals;
  ForVectors(0, x.count, [=](std::int64_t i, auto part) HWY_ATTR {
    Floats e = Load(gradients + i, part);
    if (residuals != nullptr) e = hn::Add(e, Load(residuals + i, part));
    const Words size = hn::IfThenZeroElse(hn::RebindMask(WordTag(), hn::IsNaN(e)), SizeBits(e));
    const Words bin = hn::ShiftRight<kUncountedBits>(size);
    HWY_ALIGN std::uint32_t at[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(hn::Or(hn::ShiftLeft<kColumnBits>(bin), column), WordTag(), at);
    for (std::size_t lane = 0; lane < LanesOf(part); ++lane) ++counts[at[lane]];
  });
}

/// The lower end of the bin that holds the wanted-th largest size.
double ThresholdOfFloats(const ThresholdArguments<float>& x, std::vector<std::uint32_t>& counts) {
  counts.assign(std::size_t{1} << (kBinBits + kColumnBits), 0);
  CountSizes(x, counts.data());
  constexpr std::size_t kGroup = 64;
  std::int64_t above = 0;
  std::size_t i = counts.size();
  for (; i > 0; i -= kGroup) {  // most bins are empty
    const std::uint32_t* group = counts.data() + i - kGroup;
    std::uint32_t sum = 0;
    for (std::size_t bin = 0; bin < kGroup; ++bin) sum += group[bin];
    if (above + sum >= x.wanted) break;
    above += sum;
  }
  while (above < x.wanted && i > 0) above += counts[--i];
  const auto bin = static_cast<std::uint32_t>(i >> kColumnBits);
  return static_cast<double>(std::bit_cast<float>(bin << kUncountedBits));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(SelectFloats);
HWY_EXPORT(ThresholdOfFloats);
}  // namespace

Selected Select(const SelectArguments<float>& x) { return HWY_DYNAMIC_DISPATCH(SelectFloats)(x); }

template <class T>
Selected CpuDevice<T>::Select(const SelectArguments<T>& x) {
  return cpu::Select({.count = x.count,
                      .gradients = x.gradients,
                      .residuals = x.residuals,
                      .threshold = x.threshold,
                      .keep = x.keep,
                      .format = x.format,
                      .bitmap = x.bitmap,
                      .values = x.values});
}

template <class T>
double CpuDevice<T>::Threshold(const ThresholdArguments<T>& x) {
  if (x.wanted <= 0) return std::numeric_limits<double>::infinity();
  if (x.wanted >= x.count) return 0;
  const ThresholdArguments<float> floats{
      .count = x.count, .gradients = x.gradients, .residuals = x.residuals, .wanted = x.wanted};
  return HWY_DYNAMIC_DISPATCH(ThresholdOfFloats)(floats, bin_counts_);
}

template Selected CpuDevice<float>::Select(const SelectArguments<float>&);
template Selected CpuDevice<BFloat16>::Select(const SelectArguments<BFloat16>&);
template Selected CpuDevice<Float16>::Select(const SelectArguments<Float16>&);
template double CpuDevice<float>::Threshold(const ThresholdArguments<float>&);
template double CpuDevice<BFloat16>::Threshold(const ThresholdArguments<BFloat16>&);
template double CpuDevice<Float16>::Threshold(const ThresholdArguments<Float16>&);

}  // namespace adaptive_train::kernels::cpu
#endif
