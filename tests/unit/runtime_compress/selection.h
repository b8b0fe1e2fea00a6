// Random selections, and the expected content of their messages, in plain loops.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/scalar.h"
#include "runtime/compress/sparse_message.h"

namespace adaptive_train {

/// Which elements of a piece are sent, and their values.
struct Selection {
  std::int64_t length = 0;
  std::vector<std::uint64_t> bitmap;
  std::vector<std::size_t> places;
  std::vector<float> values;  // of the places; bfloat16 holds them exactly

  std::int64_t count() const { return static_cast<std::int64_t>(places.size()); }
};

/// Selects each element with probability `density`, in runs of average length `run`.
inline Selection Select(std::int64_t length, double density, std::uint64_t seed, double run = 1) {
  std::mt19937_64 engine(seed);
  std::bernoulli_distribution selected(density), change(1 / run);
  std::uniform_int_distribution<int> value(-255, 255);
  Selection selection{length, std::vector<std::uint64_t>(BitmapWords(length)), {}, {}};
  bool now = selected(engine);
  for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
    if (change(engine)) now = selected(engine);
    if (!now) continue;
    selection.bitmap[i / 64] |= std::uint64_t{1} << i % 64;
    selection.places.push_back(i);
    selection.values.push_back(static_cast<float>(value(engine)) / 64);
  }
  return selection;
}

/// `selection` with kFloat8 values: any of the `sizes` from number `smallest` on. One in 50 is up
/// to twice that range above it.
inline Selection Sizes(Selection selection, int smallest,
                       std::uint32_t sizes = kernels::kFloat8Sizes / 2) {
  for (std::size_t i = 0; i < selection.values.size(); ++i) {
    float& value = selection.values[i];
    const auto above =
        static_cast<std::uint32_t>(value * 64 + 256) % sizes + (i % 50 == 7 ? sizes : 0);
    const auto size = (static_cast<std::uint32_t>(smallest) + above) << kernels::kFloat8Shift;
    value = std::copysign(std::bit_cast<float>(size), value);
  }
  return selection;
}

inline void AddTo(SparseMessageWriter& writer, const Selection& selection, ValueFormat format,
                  int smallest = 0) {
  if (format == ValueFormat::kFloat32) {
    writer.Add(selection.length, selection.bitmap.data(), selection.count(),
               selection.values.data());
    return;
  }
  std::vector<kernels::BFloat16> rounded;
  for (const float value : selection.values) rounded.push_back(kernels::ToBFloat16(value));
  writer.Add(selection.length, selection.bitmap.data(), selection.count(), rounded.data(),
             smallest);
}

inline MessageBytes MessageOf(const std::vector<Selection>& pieces, ValueFormat format,
                              std::uint32_t bucket) {
  SparseMessageWriter writer(bucket, format);
  for (const Selection& piece : pieces) AddTo(writer, piece, format);
  return writer.Finish();
}

inline std::vector<std::int64_t> LengthsOf(const std::vector<Selection>& pieces) {
  std::vector<std::int64_t> lengths;
  for (const Selection& piece : pieces) lengths.push_back(piece.length);
  return lengths;
}

}  // namespace adaptive_train
