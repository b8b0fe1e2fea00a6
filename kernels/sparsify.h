// Contract of top-k selection with error feedback (Stich, Cordonnier, Jaggi 2018; framework paper,
// equations 4 and 5).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// How selected values are sent. kFloat8 is a sign, five bits of exponent and two of the fraction
/// (E5M2), with an exponent that begins where it is needed: one of 128 sizes.
enum class ValueFormat : std::uint8_t { kFloat32, kBFloat16, kFloat8 };

inline constexpr int kFloat8Sizes = 128;
/// Sizes with two bits of fraction are numbered as a float32's bits without the lowest 21.
inline constexpr int kFloat8Shift = 21;

/// The number of the size that `size` is nearest to, the larger one of two: 0 is 0, 1020 infinity.
constexpr int NearestSize(float size) {
  const auto bits = std::bit_cast<std::uint32_t>(size) & 0x7fff'ffffU;
  return static_cast<int>((bits + (1U << (kFloat8Shift - 1))) >> kFloat8Shift);
}

/// From the first to the last of these on all 128 sizes are normal and finite.
inline constexpr int kLeastSmallest = 4, kMostSmallest = 1020 - kFloat8Sizes;

/// The smallest of the 128 sizes where a threshold is given: the nearest to it within these bounds.
constexpr int SmallestSize(double threshold) {
  const auto size = static_cast<float>(std::clamp(threshold, 0.0, 0x1p127));
  return std::clamp(NearestSize(size), kLeastSmallest, kMostSmallest);
}

/// The largest of the 128 sizes from number `smallest` on: what is larger is sent as this.
constexpr float LargestSize(int smallest) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(smallest + kFloat8Sizes - 1)
                              << kFloat8Shift);
}

/// Bytes of one value as Select stores it; a kFloat8 is stored as the bfloat16 that is equal to it.
constexpr std::int64_t BytesOf(ValueFormat format) {
  return format == ValueFormat::kFloat32 ? 4 : 2;
}

/// With e[i] = gradients[i] + residuals[i]: selects every i with |e[i]| >= threshold (threshold 0:
/// all of them), in ascending order, and feeds back what is not sent:
///   bit i % 64 of bitmap[i / 64] says whether i is selected; the bits past the end are 0
///   values[k] = e of the k-th selected i, rounded to `format` to nearest even; to kFloat8: the
///   nearest of the sizes from SmallestSize(threshold) on, with its sign
///   residuals[i] = e[i] - (the value as sent where i is selected, else 0) - (1 - keep)
///   residuals[i]
/// so that with keep = 1 nothing is lost: the difference to a rounded value is exact. With less it
/// is equation (5) as it stands. NaN is never selected: look at `finite`. What of `values` lies
/// behind the last selected one is left undefined.
template <class T>
struct SelectArguments {
  std::int64_t count = 0;
  const Accumulator<T>* gradients = nullptr;
  Accumulator<T>* residuals = nullptr;  // nullptr: no feedback, e = gradients
  double threshold = 0;
  double keep = 1;  // beta of equation (5): 1 is standard error feedback
  ValueFormat format = ValueFormat::kBFloat16;
  std::uint64_t* bitmap = nullptr;  // ceil(count / 64) words
  void* values = nullptr;           // room for count values, aligned to the size of one
};

struct Selected {
  std::int64_t count = 0;
  bool finite = true;  // all e are, and all values as sent
};

/// The size of e that about `wanted` of the elements reach: a threshold for Select. Never above the
/// exact wanted-th largest size, so that at least `wanted` elements are selected; below it by less
/// than 2^-8 of it (2^-134 where it is subnormal). NaN has size 0. wanted <= 0 gives infinity,
/// wanted >= count gives 0.
template <class T>
struct ThresholdArguments {
  std::int64_t count = 0;  // below 2^32
  const Accumulator<T>* gradients = nullptr;
  const Accumulator<T>* residuals = nullptr;  // nullptr: e = gradients
  std::int64_t wanted = 0;
};

/// Adds selected values where they were selected from: into[i] += the k-th value, where bit i of the
/// bitmap is the k-th that is set.
template <class T>
struct AddSelectedArguments {
  std::int64_t count = 0;
  const std::uint64_t* bitmap = nullptr;  // as SelectArguments has it
  ValueFormat format = ValueFormat::kFloat32;
  const void* values = nullptr;
  Accumulator<T>* into = nullptr;
};

/// Some elements that stand for all of a long range: sample[k] = e of a cache line of 16 elements in
/// each 256. Which line it is changes from group to group: a fixed one would always see the same
/// columns of a matrix.
template <class T>
struct SampleArguments {
  std::int64_t count = 0;
  const Accumulator<T>* gradients = nullptr;
  const Accumulator<T>* residuals = nullptr;  // not nullptr
  Accumulator<T>* sample = nullptr;           // room for SampledOf(count)
};
constexpr std::int64_t SampledOf(std::int64_t count) { return count / 256 * 16; }

}  // namespace adaptive_train::kernels
