// Contract of top-k selection with error feedback (Stich, Cordonnier, Jaggi 2018; framework paper,
// equations 4 and 5).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/scalar.h"

namespace adaptive_train::kernels {

/// How selected values are sent. kFloat8 is a sign, five bits of exponent and two of fraction
/// (E5M2). Its exponent range starts at the threshold, which gives 128 sizes (magnitudes). kInt4 is
/// for whole pieces (kernels/int4.h), which Select does not make: where it stands here, it is
/// kBFloat16, as which pieces are sent that are too short for it.
enum class ValueFormat : std::uint8_t { kFloat32, kBFloat16, kFloat8, kInt4 };

inline constexpr int kFloat8Sizes = 128;
/// A size with two bits of fraction is numbered by a float32's bits without the lowest 21.
inline constexpr int kFloat8Shift = 21;

/// The number of the size nearest to `size`; ties go to the larger. 0 is number 0, 1020 infinity.
constexpr int NearestSize(float size) {
  const auto bits = std::bit_cast<std::uint32_t>(size) & 0x7fff'ffffU;
  return static_cast<int>((bits + (1U << (kFloat8Shift - 1))) >> kFloat8Shift);
}

/// The least and greatest first number for which all 128 sizes are normal and finite.
inline constexpr int kLeastSmallest = 4, kMostSmallest = 1020 - kFloat8Sizes;

/// The number of the smallest of the 128 sizes for a threshold: the nearest within these bounds.
constexpr int SmallestSize(double threshold) {
  const auto size = static_cast<float>(std::clamp(threshold, 0.0, 0x1p127));
  return std::clamp(NearestSize(size), kLeastSmallest, kMostSmallest);
}

/// The largest of the 128 sizes from number `smallest` on. Anything larger is sent as this.
constexpr float LargestSize(int smallest) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(smallest + kFloat8Sizes - 1)
                              << kFloat8Shift);
}

/// Bytes of one value as Select stores it. A kFloat8 value is stored as the bfloat16 equal to it.
constexpr std::int64_t BytesOf(ValueFormat format) {
  return format == ValueFormat::kFloat32 ? 4 : 2;
}

/// With e[i] = gradients[i] + residuals[i], selects every i with |e[i]| >= threshold in ascending
/// order (threshold 0 selects all) and keeps what is not sent as the residual:
///   bitmap        bit i % 64 of bitmap[i / 64] is set if i is selected; bits past the end are 0
///   values[k]     e of the k-th selected i, rounded to nearest even; for kFloat8 the nearest of
///                 the sizes from SmallestSize(threshold) on, with e's sign
///   residuals[i]  e[i] - (the value as sent if i is selected, else 0) - (1 - keep) residuals[i]
/// With keep = 1 nothing is lost, since the difference to a rounded value is exact. With a smaller
/// keep it is equation (5) as it stands: old residuals decay. NaN is never selected: check
/// `finite`. `values` is undefined behind the last selected value.
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
  bool finite = true;  // all e are finite, and all values as sent
};

/// The size of e that about `wanted` of the elements reach: a threshold for Select. It is never
/// above the exact wanted-th largest size, so at least `wanted` elements are selected. It is below
/// that size by less than 2^-8 of it (2^-134 if subnormal). NaN has size 0. wanted <= 0 gives
/// infinity; wanted >= count gives 0.
template <class T>
struct ThresholdArguments {
  std::int64_t count = 0;  // below 2^32
  const Accumulator<T>* gradients = nullptr;
  const Accumulator<T>* residuals = nullptr;  // nullptr: e = gradients
  std::int64_t wanted = 0;
};

/// Adds selected values back where they came from: into[i] += the k-th value, where bit i of the
/// bitmap is the k-th bit that is set.
template <class T>
struct AddSelectedArguments {
  std::int64_t count = 0;
  const std::uint64_t* bitmap = nullptr;  // as in SelectArguments
  ValueFormat format = ValueFormat::kFloat32;
  const void* values = nullptr;
  Accumulator<T>* into = nullptr;
};

/// A sample of a long range: sample[k] = e of one cache line (16 elements) out of each 256. The
/// choice of line changes from group to group, since a fixed one would always see the same columns
/// of a matrix.
template <class T>
struct SampleArguments {
  std::int64_t count = 0;
  const Accumulator<T>* gradients = nullptr;
  const Accumulator<T>* residuals = nullptr;  // not nullptr
  Accumulator<T>* sample = nullptr;           // room for SampledOf(count)
};
constexpr std::int64_t SampledOf(std::int64_t count) { return count / 256 * 16; }

}  // namespace adaptive_train::kernels
