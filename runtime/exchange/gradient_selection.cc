#include "runtime/exchange/gradient_selection.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/compress/sparse_message.h"

namespace adaptive_train {
namespace {

/// Pieces above this size are judged by a sample: one cache line of each kSampleLines.
constexpr std::size_t kWholeElements = 8192;
constexpr std::size_t kLineElements = 16;
constexpr std::size_t kSampleLines = 16;

/// The processor does not foresee which lines come next.
constexpr std::size_t kAhead = 16;

/// Where the line of the group is that is looked at: a fixed one would always see the same columns
/// of a matrix.
std::size_t LineOf(std::size_t group) {
  static_assert(kSampleLines == 16);
  return (group * kSampleLines + ((group * 0x9e3779b97f4a7c15ULL) >> 60)) * kLineElements;
}

/// How many times the threshold the largest element looked at may be for kFloat8: 24 of the 32
/// octaves of its sizes. The others are for elements that were not looked at.
constexpr double kLargestToThreshold = 0x1p24;

/// The largest magnitude, NaN if there is one: as bits it is the largest.
double LargestOf(const float* gradients, const float* residuals, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float e = residuals == nullptr ? gradients[i] : gradients[i] + residuals[i];
    largest = std::max(largest, std::bit_cast<std::uint32_t>(e) & 0x7fff'ffffU);
  }
  return static_cast<double>(std::bit_cast<float>(largest));
}

}  // namespace

float ValueAt(kernels::ValueFormat format, const std::byte* values, std::size_t index) {
  if (format == kernels::ValueFormat::kFloat32) {
    float value = 0;
    std::memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
  }
  kernels::BFloat16 value;
  std::memcpy(&value, values + index * sizeof value, sizeof value);
  return kernels::ToFloat(value);
}

template <class T>
SelectedChunk GradientSelection<T>::Select(const GradientChunk& chunk, double density, double keep,
                                           kernels::ValueFormat format) {
  assert(density >= 1 || !residuals_.empty());
  const auto value_bytes = static_cast<std::size_t>(kernels::BytesOf(format));
  bitmaps_.resize(chunk.Words());
  values_.resize(chunk.size() * value_bytes);
  SelectedChunk all;
  std::uint64_t* bitmap = bitmaps_.data();
  for (const GradientPiece& piece : chunk.pieces) {
    std::byte* const values = values_.data() + (piece.begin - chunk.begin) * value_bytes;
    kernels::SelectArguments<T> select;
    select.count = static_cast<std::int64_t>(piece.size());
    select.gradients = gradients_.data() + piece.begin;
    select.residuals = ResidualsAt(piece.begin);
    const Threshold threshold = ThresholdOf(piece, density);
    select.threshold = threshold.least;
    select.keep = keep;
    const bool float8 = format == kernels::ValueFormat::kFloat8 && threshold.least > 0 &&
                        threshold.largest <= kLargestToThreshold * threshold.least;
    const int smallest = float8 ? kernels::SmallestSize(select.threshold) : 0;
    select.format = FormatOfPiece(format, smallest);
    select.bitmap = bitmap;
    select.values = values;
    const kernels::Selected selected = device_.Select(select);
    const std::size_t words = BitmapWords(select.count);
    all.pieces.push_back({{bitmap, words}, selected.count, values, smallest});
    all.count += selected.count;
    all.finite = all.finite && selected.finite;
    bitmap += words;
  }
  for (std::size_t i = 0; !all.finite && i < all.pieces.size(); ++i)
    PutBack(chunk.pieces[i], all.pieces[i], format);
  return all;
}

template <class T>
SelectedChunk GradientSelection<T>::Nothing(const GradientChunk& chunk) {
  bitmaps_.assign(chunk.Words(), 0);
  SelectedChunk all;
  const std::uint64_t* bitmap = bitmaps_.data();
  for (const GradientPiece& piece : chunk.pieces) {
    const std::size_t words = BitmapWords(static_cast<std::int64_t>(piece.size()));
    all.pieces.push_back({.bitmap = {bitmap, words}, .count = 0, .values = values_.data()});
    bitmap += words;
  }
  return all;
}

/// No value of the chunk will be sent: they go back to the residuals, where they are finite.
template <class T>
void GradientSelection<T>::PutBack(const GradientPiece& piece, const SelectedPiece& selected,
                                   kernels::ValueFormat format) {
  float* residuals = ResidualsAt(piece.begin);
  if (residuals == nullptr) return;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    if ((selected.bitmap[i / 64] >> (i % 64) & 1) != 0)
      residuals[i] += ValueAt(format, selected.values, taken++);
    if (!std::isfinite(residuals[i])) residuals[i] = 0;
  }
}

/// No threshold is kept from step to step: a run that goes on from a checkpoint selects what it
/// would have selected. The sample makes up for the time of looking anew.
template <class T>
typename GradientSelection<T>::Threshold GradientSelection<T>::ThresholdOf(
    const GradientPiece& piece, double density) {
  if (!piece.matrix || density >= 1) return {};
  kernels::ThresholdArguments<T> threshold;
  threshold.count = static_cast<std::int64_t>(piece.size());
  threshold.gradients = gradients_.data() + piece.begin;
  threshold.residuals = ResidualsAt(piece.begin);
  if (piece.size() > kWholeElements) {
    const std::size_t groups = piece.size() / (kLineElements * kSampleLines);
    sample_.resize(std::max(sample_.size(), groups * kLineElements));
    for (std::size_t group = 0; group < groups; ++group) {
      const std::size_t from = LineOf(group), ahead = LineOf(group + kAhead);
      __builtin_prefetch(threshold.gradients + ahead);
      __builtin_prefetch(threshold.residuals + ahead);
      for (std::size_t i = 0; i < kLineElements; ++i)
        sample_[group * kLineElements + i] =
            threshold.gradients[from + i] + threshold.residuals[from + i];
    }
    threshold.count = static_cast<std::int64_t>(groups * kLineElements);
    threshold.gradients = sample_.data();
    threshold.residuals = nullptr;
  }
  threshold.wanted =
      static_cast<std::int64_t>(std::ceil(density * static_cast<double>(threshold.count)));
  // Where most elements are 0 those alone are not worth sending.
  return {std::max(device_.Threshold(threshold),
                   static_cast<double>(std::numeric_limits<float>::denorm_min())),
          LargestOf(threshold.gradients, threshold.residuals, threshold.count)};
}

template class GradientSelection<float>;
template class GradientSelection<kernels::BFloat16>;
template class GradientSelection<kernels::Float16>;

}  // namespace adaptive_train
