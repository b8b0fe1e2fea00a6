#include "runtime/exchange/gradient_selection.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/int4.h"
#include "runtime/compress/sparse_message.h"

namespace adaptive_train {
namespace {

/// Larger pieces are judged by a sample.
constexpr std::size_t kWholeElements = 8192;

/// The largest allowed ratio of the largest sampled element to the threshold for kFloat8: 24 of the
/// 32 octaves of its sizes. The others are room for elements outside the sample.
constexpr double kLargestToThreshold = 0x1p24;

/// A shorter piece might take more bytes so than as bfloat16 (MaxMessageBytes).
bool IsPackedWhole(const GradientPiece& piece) {
  return piece.selected && piece.size() >= static_cast<std::size_t>(kernels::kInt4Block);
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
  bitmaps_.Hold(device_, chunk.Words());
  values_.Hold(device_, chunk.size() * value_bytes);
  SelectedChunk all;
  std::uint64_t* bitmap = bitmaps_.data();
  if (format == kernels::ValueFormat::kInt4) packed_.resize(chunk.size());
  std::byte* packed = packed_.data();
  for (const GradientPiece& piece : chunk.pieces) {
    const std::size_t words = BitmapWords(static_cast<std::int64_t>(piece.size()));
    if (format == kernels::ValueFormat::kInt4 && IsPackedWhole(piece)) {
      all.pieces.push_back(Pack(piece, keep, packed, all.finite));
      all.count += all.pieces.back().count;
      packed += kernels::Int4Bytes(all.pieces.back().count);
      bitmap += words;
      continue;
    }
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
    all.pieces.push_back({{bitmap, words}, selected.count, values, smallest});
    all.count += selected.count;
    all.finite = all.finite && selected.finite;
    bitmap += words;
  }
  for (std::size_t i = 0; !all.finite && i < all.pieces.size(); ++i)
    PutBack(chunk.pieces[i], all.pieces[i], format);
  Fetch(chunk, value_bytes, all);
  return all;
}

/// On the host, where the message is made.
template <class T>
SelectedPiece GradientSelection<T>::Pack(const GradientPiece& piece, double keep, std::byte* to,
                                         bool& finite) {
  const auto count = static_cast<std::int64_t>(piece.size());
  // Only read.
  const kernels::HostCopy<float> gradients(
      device_, {const_cast<float*>(gradients_.data()) + piece.begin, piece.size()});
  kernels::HostCopy<float> residuals;
  kernels::cpu::PackInt4Arguments pack{count, gradients.Fetch().data(), nullptr, keep, to};
  if (!residuals_.empty()) {
    residuals = {device_, residuals_.subspan(piece.begin, piece.size())};
    pack.residuals = residuals.Fetch().data();
  }
  finite = kernels::cpu::PackInt4(pack) && finite;
  if (!residuals_.empty()) residuals.Store();
  return {{}, count, to, kPackedWhole};
}

/// What the device has selected; the pieces point into its memory.
template <class T>
void GradientSelection<T>::Fetch(const GradientChunk& chunk, std::size_t value_bytes,
                                 SelectedChunk& selected) {
  const std::uint64_t* bitmap = bitmaps_.Fetch(0, chunk.Words()).data();
  for (std::size_t i = 0; i < selected.pieces.size(); ++i) {
    SelectedPiece& piece = selected.pieces[i];
    const std::size_t words = BitmapWords(static_cast<std::int64_t>(chunk.pieces[i].size()));
    const std::uint64_t* const own = std::exchange(bitmap, bitmap + words);
    if (piece.smallest == kPackedWhole) continue;
    piece.bitmap = {own, words};
    piece.values = values_
                       .Fetch((chunk.pieces[i].begin - chunk.begin) * value_bytes,
                              static_cast<std::size_t>(piece.count) * value_bytes)
                       .data();
  }
}

template <class T>
SelectedChunk GradientSelection<T>::Nothing(const GradientChunk& chunk) {
  bitmaps_.Hold(device_, chunk.Words());
  const std::span<std::uint64_t> none = bitmaps_.Host(0, chunk.Words());
  std::ranges::fill(none, 0);
  SelectedChunk all;
  const std::uint64_t* bitmap = none.data();
  for (const GradientPiece& piece : chunk.pieces) {
    const std::size_t words = BitmapWords(static_cast<std::int64_t>(piece.size()));
    all.pieces.push_back(
        {.bitmap = {bitmap, words}, .count = 0, .values = values_.Host(0, 0).data()});
    bitmap += words;
  }
  return all;
}

/// No value of the chunk is sent: finite ones go back to the residuals.
template <class T>
void GradientSelection<T>::PutBack(const GradientPiece& piece, const SelectedPiece& selected,
                                   kernels::ValueFormat format) {
  float* residuals = ResidualsAt(piece.begin);
  if (residuals == nullptr) return;
  const auto count = static_cast<std::int64_t>(piece.size());
  if (selected.smallest == kPackedWhole) {
    const kernels::HostCopy<float> kept(device_, {residuals, piece.size()});
    kernels::cpu::AddInt4(count, selected.values, kept.Fetch().data());
    kept.Store();
    return device_.ClearNotFinite(count, residuals);
  }
  device_.AddSelected({.count = count,
                       .bitmap = selected.bitmap.data(),
                       .format = format,
                       .values = selected.values,
                       .into = residuals});
  device_.ClearNotFinite(count, residuals);
}

/// No threshold is kept from step to step, so that a run resumed from a checkpoint selects the
/// same. The sample keeps the cost of a new search low.
template <class T>
typename GradientSelection<T>::Threshold GradientSelection<T>::ThresholdOf(
    const GradientPiece& piece, double density) {
  if (!piece.selected || density >= 1) return {};
  kernels::ThresholdArguments<T> threshold;
  threshold.count = static_cast<std::int64_t>(piece.size());
  threshold.gradients = gradients_.data() + piece.begin;
  threshold.residuals = ResidualsAt(piece.begin);
  if (piece.size() > kWholeElements) {
    const std::int64_t sampled = kernels::SampledOf(threshold.count);
    if (static_cast<std::size_t>(sampled) > sample_.size())
      sample_ = {device_, static_cast<std::size_t>(sampled)};
    device_.Sample({.count = threshold.count,
                    .gradients = threshold.gradients,
                    .residuals = threshold.residuals,
                    .sample = sample_.data()});
    threshold.count = sampled;
    threshold.gradients = sample_.data();
    threshold.residuals = nullptr;
  }
  threshold.wanted =
      static_cast<std::int64_t>(std::ceil(density * static_cast<double>(threshold.count)));
  // If most elements are 0, the zeros are not worth sending.
  return {std::max(device_.Threshold(threshold),
                   static_cast<double>(std::numeric_limits<float>::denorm_min())),
          device_.Largest(threshold.count, threshold.gradients, threshold.residuals)};
}

template class GradientSelection<float>;
template class GradientSelection<kernels::BFloat16>;
template class GradientSelection<kernels::Float16>;

}  // namespace adaptive_train
