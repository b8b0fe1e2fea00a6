// Puts values back in their places, a vector of elements at a time. Each lane takes the value whose
// number is the count of bits set below the lane.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/cpu/sparse.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expand.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kWord = 64;  // elements of a word of the bitmap

/// For each byte and each of its bits, the number of bits set below that bit.
constexpr auto kBelow = [] {
  std::array<std::array<std::uint8_t, 8>, 256> below{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit)
      below[byte][bit] = static_cast<std::uint8_t>(std::popcount(byte & ((1U << bit) - 1)));
  }
  return below;
}();

/// The index of the value that each lane takes.
HWY_INLINE Words Sources(std::uint64_t bits) {
  const hn::Rebind<std::uint8_t, WordTag> bytes;
#if HWY_TARGET != HWY_SCALAR  // HWY_SCALAR cannot combine
  if constexpr (hn::MaxLanes(WordTag()) > 8) {
    const hn::Half<decltype(bytes)> eight;
    const auto first = static_cast<std::uint8_t>(std::popcount(bits & 0xff));
    const auto low = hn::LoadU(eight, kBelow[bits & 0xff].data());
    const auto high = hn::LoadU(eight, kBelow[bits >> 8].data());
    return hn::PromoteTo(WordTag(), hn::Combine(bytes, hn::Add(high, hn::Set(eight, first)), low));
  }
#endif
  return hn::PromoteTo(WordTag(), hn::LoadU(bytes, kBelow[bits & 0xff].data()));
}

/// Loads value `i` and those after it, one per lane.
template <ValueFormat format>
HWY_INLINE Floats Values(const std::byte* values, std::int64_t i, Words smallest) {
  if constexpr (format == ValueFormat::kFloat32) {
    return hn::LoadU(FloatTag(), reinterpret_cast<const float*>(values) + i);
  } else if constexpr (format == ValueFormat::kBFloat16) {
    const hn::Rebind<std::uint16_t, WordTag> halves;
    const auto* from = reinterpret_cast<const std::uint16_t*>(values) + i;
    return FromBits(hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), hn::LoadU(halves, from))));
  } else {
    const hn::Rebind<std::uint8_t, WordTag> bytes;
    const auto* from = reinterpret_cast<const std::uint8_t*>(values) + i;
    const Words code = hn::PromoteTo(WordTag(), hn::LoadU(bytes, from));
    const Words size = hn::Add(smallest, hn::And(code, SetBits(0x7f)));
    return FromBits(
        hn::Or(hn::ShiftLeft<24>(hn::And(code, SetBits(0x80))), hn::ShiftLeft<kFloat8Shift>(size)));
  }
}

template <ValueFormat format>
float ValueAt(const std::byte* values, std::int64_t i, int smallest) {
  if constexpr (format == ValueFormat::kFloat8) {
    const auto code = static_cast<std::uint32_t>(values[i]);
    return std::bit_cast<float>(
        (code >> 7) << 31 | (static_cast<std::uint32_t>(smallest) + (code & 0x7f)) << kFloat8Shift);
  } else {
    std::conditional_t<format == ValueFormat::kFloat32, float, BFloat16> value;
    std::memcpy(&value, values + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    return ToFloat(value);
  }
}

template <bool kAdd>
HWY_INLINE void Put(float* to, float value) {
  *to = kAdd ? *to + value : value;
}

template <ValueFormat format, bool kAdd>
void ExpandAs(const ExpandArguments& x) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  const std::uint64_t mask = (std::uint64_t{1} << lanes) - 1;
  const Words smallest = SetBits(static_cast<std::uint32_t>(x.smallest));
  std::int64_t i = 0, next = 0;
  // Stops where a whole vector of values could no longer be read from any position.
  for (; i + kWord <= x.count && next + kWord <= x.value_count; i += kWord) {
    std::uint64_t word;
    std::memcpy(&word, x.bitmap + i / 8, sizeof word);
    for (float* to = x.to + i; to < x.to + i + kWord; to += lanes, word >>= lanes % kWord) {
      const std::uint64_t bits = word & mask;
      std::uint8_t bytes[8] = {static_cast<std::uint8_t>(bits),
                               static_cast<std::uint8_t>(bits >> 8)};
      const Floats values = Values<format>(x.values, next, smallest);
      const Floats expanded =
          hn::TableLookupLanes(values, hn::IndicesFromVec(FloatTag(), Sources(bits)));
      const Floats placed = hn::IfThenElseZero(hn::LoadMaskBits(FloatTag(), bytes), expanded);
      Store(kAdd ? hn::Add(Load(to), placed) : placed, to);
      next += std::popcount(bits);
    }
  }
  for (; i < x.count; ++i) {
    const bool set = (static_cast<unsigned>(x.bitmap[i / 8]) >> (i % 8) & 1U) != 0;
    if (set) {
      Put<kAdd>(x.to + i, ValueAt<format>(x.values, next++, x.smallest));
    } else if (!kAdd) {
      x.to[i] = 0;
    }
  }
}

template <bool kAdd>
void ExpandFormat(const ExpandArguments& x) {
  switch (x.format) {
    case ValueFormat::kFloat32:
      return ExpandAs<ValueFormat::kFloat32, kAdd>(x);
    case ValueFormat::kInt4:
    case ValueFormat::kBFloat16:
      return ExpandAs<ValueFormat::kBFloat16, kAdd>(x);
    case ValueFormat::kFloat8:
      return ExpandAs<ValueFormat::kFloat8, kAdd>(x);
  }
}

void ExpandOver(const ExpandArguments& x) { ExpandFormat<false>(x); }
void ExpandOnto(const ExpandArguments& x) { ExpandFormat<true>(x); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(ExpandOver);
HWY_EXPORT(ExpandOnto);
}  // namespace

void Expand(const ExpandArguments& x) { HWY_DYNAMIC_DISPATCH(ExpandOver)(x); }
void AddExpanded(const ExpandArguments& x) { HWY_DYNAMIC_DISPATCH(ExpandOnto)(x); }

}  // namespace adaptive_train::kernels::cpu
#endif
