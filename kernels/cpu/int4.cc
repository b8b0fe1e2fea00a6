// Packing and unpacking of whole blocks, a vector at a time; a last, shorter block goes one by one.
#include "kernels/int4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/int4.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kHalfBlock = kInt4Block / 2;
constexpr std::size_t kScaleBytes = 2, kBlockBytes = kScaleBytes + kHalfBlock;
constexpr int kMostNumber = 7, kZero = 8;
/// Blocks below are zeros: the reciprocal of a smaller scale might not be finite.
constexpr float kLeastLargest = 0x1p-100F;

using NumberTag = hn::RebindToSigned<FloatTag>;
using ByteTag = hn::Rebind<std::uint8_t, FloatTag>;

constexpr float LargestWith(bool feedback) {
  return feedback ? kInt4LargestWithFeedback : kInt4Largest;
}

/// The scale of elements up to `largest`, as the bits of a float that is a bfloat16; 0 for a block of
/// zeros.
std::uint32_t ScaleOf(float largest, float limit) {
  if (!(largest >= kLeastLargest && largest <= limit)) return 0;
  return (std::bit_cast<std::uint32_t>(largest / kMostNumber) + 0xffffU) & 0xffff0000U;
}

float LoadScale(const std::byte* block) {
  BFloat16 scale;
  std::memcpy(&scale, block, sizeof scale);
  return ToFloat(scale);
}
void StoreScale(std::uint32_t bits, std::byte* block) {
  const auto upper = static_cast<std::uint16_t>(bits >> 16);
  std::memcpy(block, &upper, sizeof upper);
}

/// Two numbers of a byte each become one byte.
void JoinHalves(const std::uint8_t* numbers, std::int64_t count, std::byte* to) {
  const std::int64_t half = (count + 1) / 2;
  for (std::int64_t j = 0; j < half; ++j) {
    const unsigned upper = half + j < count ? numbers[half + j] : 0;
    to[j] = static_cast<std::byte>(numbers[j] | upper << 4);
  }
}

/// Packs a whole block; false if it cannot be.
template <bool kFeedback>
HWY_INLINE bool PackBlock(const float* gradients, float* residuals, float decay, std::byte* to) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  HWY_ALIGN float sums[kInt4Block];
  Words sizes = hn::Zero(WordTag());
  for (std::int64_t i = 0; i < kInt4Block; i += lanes) {
    Floats e = LoadPart(FloatTag(), gradients + i, Whole());
    if constexpr (kFeedback) e = hn::Add(e, LoadPart(FloatTag(), residuals + i, Whole()));
    sizes = hn::Max(sizes, ToBits(hn::Abs(e)));
    hn::Store(e, FloatTag(), sums + i);
  }
  const auto largest = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(WordTag(), sizes)));
  constexpr float kLimit = LargestWith(kFeedback);
  const std::uint32_t bits = ScaleOf(largest, kLimit);
  const float scale = std::bit_cast<float>(bits), inverse = bits == 0 ? 0 : 1 / scale;
  StoreScale(bits, to);
  std::uint8_t numbers[kInt4Block];
  for (std::int64_t i = 0; i < kInt4Block; i += lanes) {
    const Floats e = hn::Load(FloatTag(), sums + i);
    const auto number =
        bits == 0 ? hn::Zero(NumberTag()) : hn::NearestInt(hn::Mul(e, Set(inverse)));
    if constexpr (kFeedback) {
      const Floats old = LoadPart(FloatTag(), residuals + i, Whole());
      const Floats sent = hn::Mul(hn::ConvertTo(FloatTag(), number), Set(scale));
      const Floats left = hn::Sub(hn::Sub(e, sent), hn::Mul(Set(decay), old));
      const auto too_large = hn::Gt(hn::Abs(e), Set(kLimit));
      StorePart(hn::IfThenElse(too_large, hn::NaN(FloatTag()), left), FloatTag(), residuals + i,
                Whole());
    }
    const auto coded = hn::Add(number, hn::Set(NumberTag(), kZero));
    StorePart(hn::DemoteTo(ByteTag(), coded), ByteTag(), numbers + i, Whole());
  }
  JoinHalves(numbers, kInt4Block, to + kScaleBytes);
  return largest <= kLimit;
}

/// Handles the last, shorter block.
bool PackRest(std::int64_t count, const float* gradients, float* residuals, float decay,
              std::byte* to) {
  std::uint32_t size = 0;
  float sums[kInt4Block];
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i] = residuals == nullptr ? gradients[i] : gradients[i] + residuals[i];
    size = std::max(size, std::bit_cast<std::uint32_t>(sums[i]) & 0x7fff'ffffU);
  }
  const auto largest = std::bit_cast<float>(size);
  const float limit = LargestWith(residuals != nullptr);
  const std::uint32_t bits = ScaleOf(largest, limit);
  const float scale = std::bit_cast<float>(bits), inverse = bits == 0 ? 0 : 1 / scale;
  StoreScale(bits, to);
  std::uint8_t numbers[kInt4Block];
  for (std::int64_t i = 0; i < count; ++i) {
    const float number = bits == 0 ? 0 : std::nearbyint(sums[i] * inverse);
    if (residuals != nullptr) {
      const float left = sums[i] - number * scale - decay * residuals[i];
      residuals[i] = std::abs(sums[i]) > limit ? std::numeric_limits<float>::quiet_NaN() : left;
    }
    numbers[i] = static_cast<std::uint8_t>(static_cast<int>(number) + kZero);
  }
  JoinHalves(numbers, count, to + kScaleBytes);
  return largest <= limit;
}

bool PackAll(const PackInt4Arguments& x) {
  const float decay = static_cast<float>(1 - x.keep);
  bool right = true;
  std::byte* to = x.packed;
  std::int64_t i = 0;
  for (; i + kInt4Block <= x.count; i += kInt4Block, to += kBlockBytes) {
    right &= x.residuals != nullptr ? PackBlock<true>(x.gradients + i, x.residuals + i, decay, to)
                                    : PackBlock<false>(x.gradients + i, nullptr, decay, to);
  }
  float* const rest = x.residuals == nullptr ? nullptr : x.residuals + i;
  if (i < x.count) right &= PackRest(x.count - i, x.gradients + i, rest, decay, to);
  return right;
}

/// One half of a block: `Lanes` elements from the lower or upper halves of bytes.
template <bool kAdd>
HWY_INLINE void PutNumbers(Words numbers, Floats scale, float* to) {
  const auto number = hn::Sub(hn::BitCast(NumberTag(), numbers), hn::Set(NumberTag(), kZero));
  const Floats value = hn::Mul(hn::ConvertTo(FloatTag(), number), scale);
  const Floats put = kAdd ? hn::Add(LoadPart(FloatTag(), to, Whole()), value) : value;
  StorePart(put, FloatTag(), to, Whole());
}

template <bool kAdd>
void PutAll(std::int64_t count, const std::byte* packed, float* to) {
  const auto lanes = static_cast<std::int64_t>(Lanes());
  for (; count >= kInt4Block; count -= kInt4Block, packed += kBlockBytes, to += kInt4Block) {
    const Floats scale = Set(LoadScale(packed));
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(packed + kScaleBytes);
    for (std::int64_t j = 0; j < kHalfBlock; j += lanes) {
      const Words both = hn::PromoteTo(WordTag(), LoadPart(ByteTag(), bytes + j, Whole()));
      PutNumbers<kAdd>(hn::And(both, SetBits(15)), scale, to + j);
      PutNumbers<kAdd>(hn::ShiftRight<4>(both), scale, to + kHalfBlock + j);
    }
  }
  if (count == 0) return;
  const float scale = LoadScale(packed);
  const std::int64_t half = (count + 1) / 2;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto byte =
        static_cast<unsigned>(packed[kScaleBytes + static_cast<std::size_t>(i % half)]);
    const auto number = static_cast<int>(i < half ? byte & 15U : byte >> 4) - kZero;
    const float value = static_cast<float>(number) * scale;
    to[i] = kAdd ? to[i] + value : value;
  }
}

void PutOnto(std::int64_t count, const std::byte* packed, float* to) {
  PutAll<true>(count, packed, to);
}
void PutOver(std::int64_t count, const std::byte* packed, float* to) {
  PutAll<false>(count, packed, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adaptive_train::kernels::cpu {
namespace {
HWY_EXPORT(PackAll);
HWY_EXPORT(PutOnto);
HWY_EXPORT(PutOver);
}  // namespace

bool PackInt4(const PackInt4Arguments& x) { return HWY_DYNAMIC_DISPATCH(PackAll)(x); }
void AddInt4(std::int64_t count, const std::byte* packed, float* to) {
  HWY_DYNAMIC_DISPATCH(PutOnto)(count, packed, to);
}
void UnpackInt4(std::int64_t count, const std::byte* packed, float* to) {
  HWY_DYNAMIC_DISPATCH(PutOver)(count, packed, to);
}

bool Int4ScalesRight(std::int64_t count, const std::byte* packed) {
  constexpr std::uint16_t kLargest = std::bit_cast<std::uint32_t>(kInt4LargestScale) >> 16;
  bool right = true;
  for (std::int64_t i = 0; i < count; i += kInt4Block) {
    std::uint16_t scale;
    std::memcpy(&scale, packed + i / kInt4Block * static_cast<std::int64_t>(Int4Bytes(kInt4Block)),
                sizeof scale);
    right &= scale <= kLargest;  // a set sign is larger
  }
  return right;
}

}  // namespace adaptive_train::kernels::cpu
#endif
