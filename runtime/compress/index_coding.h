// Which elements of a piece a sparse message carries: a bitmap, or Rice codes of the gaps between
// them.
//
// The gap of an element is the number of elements that are left out between it and the one before.
// With parameter k it is sent as gap mod 2^k and floor(gap / 2^k) (Rice 1979; Golomb 1966 with
// divisor 2^k). Each is in a separate stream, so that decoding a code need not wait for the end of
// the previous one:
//
//   remainders   per gap a field of k bits
//   quotients    per gap as many zeros as its quotient, then a one
//
// Bits count from the lowest of the first byte; a stream's last byte is padded with zeros.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

static_assert(std::endian::native == std::endian::little, "words are stored as they are");

/// The coding of a piece's places; the numbers are part of the format.
enum class IndexCoding : std::uint8_t {
  kNone = 0,  // all elements are sent, or none
  kBitmap = 1,
  kRice = 2,
};

/// The maximum number of a piece's elements: places and gaps are 32 bits wide.
inline constexpr std::int64_t kMaxPieceLength = UINT32_MAX;
/// The largest parameter of a Rice code.
inline constexpr int kMaxRiceBits = 30;

/// Bytes for this many bits.
constexpr std::size_t BytesOfBits(std::uint64_t bits) {
  return static_cast<std::size_t>((bits + 7) / 8);
}
/// Words of a bitmap for this many elements.
constexpr std::size_t BitmapWords(std::int64_t length) {
  return (static_cast<std::size_t>(length) + 63) / 64;
}

/// The number of elements set in a bitmap.
inline std::size_t CountOf(std::span<const std::uint64_t> bitmap) {
  std::size_t count = 0;
  for (const std::uint64_t word : bitmap) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

/// How AppendTo coded an index.
struct IndexCode {
  IndexCoding coding = IndexCoding::kNone;
  std::uint8_t rice_bits = 0;  // the parameter k, 0 unless coding is kRice
  std::size_t bytes = 0;
};

/// If at least one in this many elements is sent, the index is a bitmap. Rice codes of random gaps
/// would be at most a sixth shorter there, and take twice the time to write and read.
inline constexpr std::int64_t kBitmapShare = 4;

/// Chooses the shortest coding of an index, except for kBitmapShare. Keeps its working memory
/// between calls. Not thread-safe.
class IndexEncoder {
 public:
  /// Appends to `out` which of `length` elements (at most kMaxPieceLength) are sent: the `count`
  /// elements whose bits are set in `bitmap`. The bitmap has BitmapWords(length) words with zeros
  /// past the end; it is not read if all or no elements are sent.
  IndexCode AppendTo(std::vector<std::byte>& out, std::int64_t length, const std::uint64_t* bitmap,
                     std::int64_t count);

 private:
  std::vector<std::uint32_t> places_;  // and one more
};

/// The index of a piece as stored in a message.
struct PieceIndex {
  std::int64_t length = 0;  // elements of the piece
  std::int64_t count = 0;   // elements sent
  IndexCoding coding = IndexCoding::kNone;
  std::uint8_t rice_bits = 0;
  std::span<const std::byte> bytes;
};

/// Checks that the index names exactly `count` places within `length`, in ascending order, and in
/// the one form that the encoder produces for its coding and parameter. `length` is trusted,
/// everything else is not. The error says briefly what is wrong.
Result<void> CheckIndex(const PieceIndex& index);

/// The 64 bits from byte `offset` on, zeros past the end.
inline std::uint64_t LoadWord(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t word = 0;
  if (bytes.size() - offset >= sizeof word) {
    std::memcpy(&word, bytes.data() + offset, sizeof word);
  } else {
    std::memcpy(&word, bytes.data() + offset, bytes.size() - offset);
  }
  return word;
}

/// Reads consecutive fields of one width, from 0 to kMaxRiceBits bits.
class FieldReader {
 public:
  FieldReader(std::span<const std::byte> bytes, int width)
      : bytes_(bytes), width_(width), mask_((std::uint64_t{1} << width) - 1) {}

  std::uint64_t Next() {
    std::uint64_t field = word_;
    if (left_ >= width_) {
      word_ >>= width_;
      left_ -= width_;
    } else {
      const std::uint64_t next = LoadWord(bytes_, offset_);
      offset_ += sizeof next;
      field |= next << left_;
      word_ = next >> (width_ - left_);
      left_ += 64 - width_;
    }
    return field & mask_;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  int width_;
  std::uint64_t mask_;
  std::uint64_t word_ = 0;  // loaded bits that are not consumed yet
  int left_ = 0;            // their number, below 64
};

/// Calls visit(place) for each bit set in `word`, ascending. Bit 0 is place `first`.
template <class Visit>
void ForEachBit(std::uint64_t word, std::size_t first, Visit visit) {
  for (; word != 0; word &= word - 1)
    visit(first + static_cast<std::size_t>(std::countr_zero(word)));
}

/// Bytes of the remainders' stream.
inline std::size_t RemainderBytes(const PieceIndex& index) {
  return BytesOfBits(static_cast<std::uint64_t>(index.count) * index.rice_bits);
}

/// Calls visit(place) in ascending order for the places of a checked index coded by kRice.
template <class Visit>
void ForEachRicePlace(const PieceIndex& index, Visit visit) {
  FieldReader remainders(index.bytes.first(RemainderBytes(index)), index.rice_bits);
  const std::span<const std::byte> quotients = index.bytes.subspan(RemainderBytes(index));
  // Place i is the sum of the first i + 1 gaps, plus i. The zeros before the i-th one add up to the
  // sum of the quotients so far.
  std::size_t places = 0, remainder_sum = 0;
  for (std::size_t offset = 0; offset < quotients.size(); offset += sizeof(std::uint64_t)) {
    ForEachBit(LoadWord(quotients, offset), 8 * offset, [&](std::size_t bit) {
      remainder_sum += remainders.Next();
      visit(((bit - places) << index.rice_bits) + remainder_sum + places);
      ++places;
    });
  }
}

}  // namespace adaptive_train
