// A bucket of generated gradients for tests of the exchange through owners. Each rank's selection
// is a function of its number and the place, so that every rank knows what all of them sent.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exchange/owner_exchange.h"

namespace adaptive_train {

struct MadeBucket {
  std::uint32_t bucket = 0;
  std::size_t size = 0;  // elements
  double density = 1;
  ValueFormat format = ValueFormat::kFloat32;
  bool integers = false;  // small integers, whose sums are exact in both formats
  SparseMessageWriter::Lossless lossless = SparseMessageWriter::Lossless::kNone;

  std::uint64_t Bits(int rank, std::size_t i) const {  // Steele, Lea and Flood 2014
    std::uint64_t z = (i * 64 + static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15ULL +
                      (std::uint64_t{bucket} << 40);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  bool Selected(int rank, std::size_t i) const {
    return static_cast<double>(Bits(rank, i) >> 40) < density * 0x1p24;
  }
  /// The value as sent.
  float Value(int rank, std::size_t i) const {
    const auto low = static_cast<std::int32_t>(Bits(rank, i) & 0xff'ffff);
    // Within 27 octaves, so that sums of 16 of them are within the 32 of the sizes.
    if (format == ValueFormat::kFloat8)
      return std::ldexp((low & 32) != 0 ? -1.75f : 1.25f, low % 27 - 2);
    if (integers) return static_cast<float>(low % 17 - 8);
    const float value = static_cast<float>(low - 0x80'0000) * 0x1p-23f;
    return format == ValueFormat::kFloat32 ? value : ToFloat(kernels::ToBFloat16(value));
  }
  /// The number of the smallest of kFloat8's sizes, 1/4; 0 in other formats.
  int Smallest() const { return format == ValueFormat::kFloat8 ? 500 : 0; }
  /// The number of elements before chunk `rank`.
  std::size_t Begin(int rank, int ranks) const {
    return size * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
  }
  /// Each chunk has three pieces, some of them empty.
  BucketChunks Chunks(int ranks) const {
    BucketChunks chunks{bucket, {}};
    for (int r = 0; r < ranks; ++r) {
      const auto length = static_cast<std::int64_t>(Begin(r + 1, ranks) - Begin(r, ranks));
      chunks.pieces.push_back({length / 5, length % 2 * (length / 5), 0});
      chunks.pieces.back()[2] = length - chunks.pieces.back()[0] - chunks.pieces.back()[1];
    }
    return chunks;
  }
  /// The message of `rank` for the pieces that begin at `begin`.
  MessageBytes Message(int rank, PieceLengths pieces, std::size_t begin) const {
    SparseMessageWriter writer(bucket, format);
    for (const std::int64_t length : pieces) {
      std::vector<std::uint64_t> bitmap((static_cast<std::size_t>(length) + 63) / 64);
      std::vector<float> full;
      std::vector<kernels::BFloat16> half;
      for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
        if (!Selected(rank, begin + i)) continue;
        bitmap[i / 64] |= std::uint64_t{1} << i % 64;
        full.push_back(Value(rank, begin + i));
        half.push_back(kernels::ToBFloat16(full.back()));
      }
      const bool wide = format == ValueFormat::kFloat32;
      writer.Add(length, bitmap.data(), static_cast<std::int64_t>(full.size()),
                 wide ? static_cast<const void*>(full.data()) : half.data(), Smallest());
      begin += static_cast<std::size_t>(length);
    }
    return writer.Finish(lossless);
  }
  OwnerExchangeOrder Order(int rank, int ranks, std::span<float> result) const {
    OwnerExchangeOrder order;
    order.chunks = Chunks(ranks);
    order.format = format;
    order.lossless = lossless;
    order.result = result;
    for (int owner = 0; owner < ranks; ++owner)
      order.messages.push_back(
          Message(rank, order.chunks.pieces[static_cast<std::size_t>(owner)], Begin(owner, ranks)));
    return order;
  }
};

/// The sum of an element over the ranks, in their order.
struct ExpectedSum {
  float single = 0;    // in float32, as the owner adds
  double exact = 0;    // the reference
  double largest = 0;  // sum of the sizes

  ExpectedSum(const MadeBucket& made, int ranks, std::size_t i) {
    for (int r = 0; r < ranks; ++r) {
      if (!made.Selected(r, i)) continue;
      const float value = made.Value(r, i);
      single += value;
      exact += value;
      largest += value < 0 ? -value : value;
    }
  }
  /// The value that all ranks get.
  float Rounded(ValueFormat format) const {
    if (format == ValueFormat::kFloat8) {
      const int size = kernels::NearestSize(single), last = 500 + kernels::kFloat8Sizes - 1;
      const auto bits = static_cast<std::uint32_t>(std::min(size, last));
      return size < 500
                 ? 0
                 : std::copysign(std::bit_cast<float>(bits << kernels::kFloat8Shift), single);
    }
    return format == ValueFormat::kFloat32 ? single : ToFloat(kernels::ToBFloat16(single));
  }
};

}  // namespace adaptive_train
