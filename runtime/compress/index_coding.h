// Which elements of a piece a sparse message carries: a bitmap, or Rice codes of the gaps between
// them.
//
// The gap of an element is the number of elements that are left out between it and the one before.
// With parameter k it is sent as gap mod 2^k and floor(gap / 2^k) (Rice 1979; Golomb 1966 with
// divisor 2^k), each in a stream of its own, so that nothing waits for the end of the code before:
//
//   remainders   per gap a field of k bits
//   quotients    per gap as many zeros as its quotient, then a one
//
// Bits count from the lowest of the first byte; a stream's last byte is filled up with zeros.
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

/// How a piece's places are sent; the numbers are part of the format.
enum class IndexCoding : std::uint8_t {
  kNone = 0,  // all elements are sent, or none
  kBitmap = 1,
  kRice = 2,
};

/// Elements of a piece, at most: places and gaps are 32 bits wide.
inline constexpr std::int64_t kMaxPieceLength = UINT32_MAX;
/// The largest parameter of a Rice code.
inline constexpr int kMaxRiceBits = 30;

/// Bytes of as many bits.
constexpr std::size_t BytesOfBits(std::uint64_t bits) {
  return static_cast<std::size_t>((bits + 7) / 8);
}
/// Words of a bitmap of as many elements.
constexpr std::size_t BitmapWords(std::int64_t length) {
  return (static_cast<std::size_t>(length) + 63) / 64;
}

/// Elements that are set in a bitmap.
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

/// Where one in so many elements is sent, or more, the index is a bitmap: Rice codes of random gaps
/// would be a sixth shorter there at most, and making and reading them takes twice the time.
inline constexpr std::int64_t kBitmapShare = 4;

/// Codes indices in the shortest way, but for kBitmapShare; what it keeps is room to work in. Not
/// thread-safe.
class IndexEncoder {
 public:
  /// Appends to `out` which of `length` elements are sent: those `count` whose bits are set in
  /// `bitmap` (BitmapWords(length) words, zeros past the end; not read where all or no elements are
  /// sent). length is at most kMaxPieceLength.
  IndexCode AppendTo(std::vector<std::byte>& out, std::int64_t length, const std::uint64_t* bitmap,
                     std::int64_t count);

 private:
  std::vector<std::uint32_t> places_;  // and one more
};

/// The index of a piece, as it lies in a message.
struct PieceIndex {
  std::int64_t length = 0;  // elements of the piece
  std::int64_t count = 0;   // elements sent
  IndexCoding coding = IndexCoding::kNone;
  std::uint8_t rice_bits = 0;
  std::span<const std::byte> bytes;
};

/// Whether the index names exactly `count` places within `length`, in ascending order and in the
/// only form that the encoder gives a coding and parameter. `length` is believed, all else is not.
/// The error says in a few words what is wrong.
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

/// Fields of one width, from 0 to kMaxRiceBits bits, one after the other.
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
  std::uint64_t word_ = 0;  // the bits that are loaded and not yet given out
  int left_ = 0;            // their number, below 64
};

/// Calls visit(place) for the bits that are set in `word`, ascending; its first bit is place
/// `first`.
template <class Visit>
void ForEachBit(std::uint64_t word, std::size_t first, Visit visit) {
  for (; word != 0; word &= word - 1)
    visit(first + static_cast<std::size_t>(std::countr_zero(word)));
}

/// Bytes of the remainders' stream.
inline std::size_t RemainderBytes(const PieceIndex& index) {
  return BytesOfBits(static_cast<std::uint64_t>(index.count) * index.rice_bits);
}

/// Calls visit(place) for the places of an index that has been checked and is coded by kRice,
/// ascending.
template <class Visit>
void ForEachRicePlace(const PieceIndex& index, Visit visit) {
  FieldReader remainders(index.bytes.first(RemainderBytes(index)), index.rice_bits);
  const std::span<const std::byte> quotients = index.bytes.subspan(RemainderBytes(index));
  // Place i is the sum of the first i + 1 gaps, plus i. The zeros before a one are the sum of the
  // quotients up to there.
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
