// Indices survive a round trip; their shortest code bit by bit; invalid indices are refused.
#include "runtime/compress/index_coding.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/runtime_compress/selection.h"

namespace adaptive_train::index_coding_test {
namespace {

struct Coded {
  std::vector<std::byte> bytes;
  PieceIndex index;
};

Coded Encode(const Selection& selection) {
  Coded coded;
  IndexEncoder encoder;
  const IndexCode code =
      encoder.AppendTo(coded.bytes, selection.length, selection.bitmap.data(), selection.count());
  EXPECT_EQ(code.bytes, coded.bytes.size());
  coded.index = {selection.length, selection.count(), code.coding, code.rice_bits, coded.bytes};
  return coded;
}

std::vector<std::size_t> Places(const PieceIndex& index) {
  std::vector<std::size_t> places;
  const auto add = [&](std::size_t place) { places.push_back(place); };
  if (index.coding == IndexCoding::kRice) ForEachRicePlace(index, add);
  if (index.coding == IndexCoding::kBitmap) {
    for (std::size_t offset = 0; offset < index.bytes.size(); offset += 8)
      ForEachBit(LoadWord(index.bytes, offset), 8 * offset, add);
  }
  if (index.coding == IndexCoding::kNone) {
    for (std::int64_t i = 0; i < index.count; ++i) add(static_cast<std::size_t>(i));
  }
  return places;
}

Selection Of(std::int64_t length, const std::vector<std::size_t>& places) {
  Selection selection{length, std::vector<std::uint64_t>(BitmapWords(length)), places, {}};
  for (const std::size_t place : places)
    selection.bitmap[place / 64] |= std::uint64_t{1} << place % 64;
  return selection;
}

/// The shortest of the possible codes, by counting; 0 if no index is needed.
std::uint64_t ShortestBits(const Selection& selection) {
  if (selection.count() == 0 || selection.count() == selection.length) return 0;
  auto shortest = static_cast<std::uint64_t>(selection.length);
  if (selection.count() >= selection.length / kBitmapShare) return shortest;
  for (int k = 0; k <= kMaxRiceBits; ++k) {
    std::uint64_t bits = 0, expected = 0;
    for (const std::size_t place : selection.places) {
      bits += ((place - expected) >> k) + 1 + static_cast<std::uint64_t>(k);
      expected = place + 1;
    }
    shortest = std::min(shortest, bits);
  }
  return shortest;
}

void ExpectRoundTrip(const Selection& selection) {
  const Coded coded = Encode(selection);
  const auto right = CheckIndex(coded.index);
  ASSERT_TRUE(right) << right.error().message;
  EXPECT_EQ(Places(coded.index), selection.places);
  // Rice codes have two streams, each of whole bytes.
  EXPECT_LE(coded.bytes.size(), BytesOfBits(ShortestBits(selection)) + 1);
  EXPECT_LE(coded.bytes.size(), BytesOfBits(static_cast<std::uint64_t>(selection.length)));
}

TEST(IndexCoding, AllSelectionsOfUpToElevenElements) {
  for (std::int64_t length = 0; length <= 11; ++length) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << length; ++bits) {
      std::vector<std::size_t> places;
      ForEachBit(bits, 0, [&](std::size_t place) { places.push_back(place); });
      ExpectRoundTrip(Of(length, places));
    }
  }
}

TEST(IndexCoding, RandomAndClusteredPlaces) {
  for (const std::int64_t length : {1, 63, 64, 65, 127, 128, 997, 7919, 65536}) {
    for (const double density : {0.0, 0.0005, 0.0125, 0.05, 0.1, 0.3, 0.4, 0.7, 0.99, 1.0}) {
      for (const double run : {1.0, 30.0}) {
        SCOPED_TRACE(testing::Message() << length << " elements, density " << density);
        ExpectRoundTrip(Select(length, density, static_cast<std::uint64_t>(length), run));
      }
    }
  }
}

TEST(IndexCoding, LoneElementsOfLongPieces) {
  constexpr std::int64_t kLength = (std::int64_t{1} << 24) + 3;
  constexpr std::size_t kLast = kLength - 1;
  for (const std::vector<std::size_t>& places :
       {std::vector<std::size_t>{0}, {kLast}, {kLast / 2}, {0, kLast}, {0, 1, 2, kLast}})
    ExpectRoundTrip(Of(kLength, places));
}

TEST(IndexCoding, RiceCodesAreTheDocumentedBits) {
  // Gaps 3, 0, 4; k = 1: remainders 1 0 0, quotients 01 1 001.
  const Coded coded = Encode(Of(64, {3, 4, 9}));
  EXPECT_EQ(coded.index.coding, IndexCoding::kRice);
  EXPECT_EQ(coded.index.rice_bits, 1);
  EXPECT_EQ(coded.bytes, (std::vector<std::byte>{std::byte{0b001}, std::byte{0b100110}}));
}

TEST(IndexCoding, TheShortestOfEachKind) {
  EXPECT_EQ(Encode(Select(1000, 0, 1)).index.coding, IndexCoding::kNone);
  EXPECT_EQ(Encode(Select(1000, 1, 1)).index.coding, IndexCoding::kNone);
  EXPECT_EQ(Encode(Select(100000, 0.1, 1)).index.coding, IndexCoding::kRice);
  EXPECT_EQ(Encode(Select(100000, 0.23, 1)).index.coding, IndexCoding::kRice);
  EXPECT_EQ(Encode(Select(100000, 0.27, 1)).index.coding, IndexCoding::kBitmap);
  EXPECT_EQ(Encode(Select(100000, 0.5, 1)).index.coding, IndexCoding::kBitmap);
  EXPECT_EQ(Encode(Select(100000, 0.9, 1)).index.coding, IndexCoding::kBitmap);
}

/// Why an index is refused.
std::string Refusal(std::int64_t length, std::int64_t count, IndexCoding coding, int rice_bits,
                    const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  const auto right =
      CheckIndex({length, count, coding, static_cast<std::uint8_t>(rice_bits), bytes});
  return right ? "believed" : right.error().message;
}

TEST(IndexCoding, RefusesAWrongKind) {
  EXPECT_EQ(Refusal(10, 11, IndexCoding::kNone, 0, {}), "more elements than it has");
  EXPECT_EQ(Refusal(10, 3, IndexCoding::kNone, 0, {}), "its index coding is wrong");
  EXPECT_EQ(Refusal(10, 10, IndexCoding::kBitmap, 0, {255, 3}), "its index coding is wrong");
  EXPECT_EQ(Refusal(10, 0, IndexCoding::kRice, 0, {0}), "its index coding is wrong");
  EXPECT_EQ(Refusal(10, 10, IndexCoding::kNone, 0, {255}), "an index where none is needed");
  EXPECT_EQ(Refusal(10, 10, IndexCoding::kNone, 1, {}), "a Rice parameter without Rice codes");
  EXPECT_EQ(Refusal(10, 3, static_cast<IndexCoding>(3), 0, {}), "its index coding is unknown");
}

TEST(IndexCoding, RefusesWrongBitmaps) {
  EXPECT_EQ(Refusal(10, 3, IndexCoding::kBitmap, 0, {3, 2}), "believed");
  EXPECT_EQ(Refusal(10, 3, IndexCoding::kBitmap, 0, {7}), "the bitmap has a wrong length");
  EXPECT_EQ(Refusal(10, 3, IndexCoding::kBitmap, 0, {7, 0, 0}), "the bitmap has a wrong length");
  EXPECT_EQ(Refusal(10, 3, IndexCoding::kBitmap, 0, {3, 4}), "bits past its end are set");
  EXPECT_EQ(Refusal(10, 3, IndexCoding::kBitmap, 0, {3, 0}),
            "the bitmap has another number of elements");
  EXPECT_EQ(Refusal(10, 3, IndexCoding::kBitmap, 0, {3, 3}),
            "the bitmap has another number of elements");
}

TEST(IndexCoding, RefusesWrongRiceCodes) {
  constexpr IndexCoding kRice = IndexCoding::kRice;
  EXPECT_EQ(Refusal(64, 3, kRice, 1, {0b001, 0b100110}), "believed");
  EXPECT_EQ(Refusal(64, 3, kRice, 31, {0b001, 0b100110}), "its Rice parameter is too large");
  EXPECT_EQ(Refusal(16, 3, kRice, 1, {0b001, 0b100110}), "its gaps are longer than a bitmap");
  EXPECT_EQ(Refusal(64, 3, kRice, 1, {0b001}), "its gaps are too short");
  EXPECT_EQ(Refusal(64, 3, kRice, 1, {}), "its gaps are too short");
  EXPECT_EQ(Refusal(64, 3, kRice, 1, {0b001, 0b100110, 0}), "the gaps end before their bytes");
  EXPECT_EQ(Refusal(64, 3, kRice, 1, {0b1001, 0b100110}), "bits past its end are set");
  EXPECT_EQ(Refusal(64, 3, kRice, 1, {0b001, 0b100100}), "it has another number of gaps");
  EXPECT_EQ(Refusal(64, 3, kRice, 1, {0b001, 0b1100110}), "it has another number of gaps");
}

TEST(IndexCoding, RefusesPlacesPastTheEnd) {
  constexpr IndexCoding kRice = IndexCoding::kRice;
  // Quotient 0 and remainder 62, 63, 64 of 7 bits: the place is the remainder.
  EXPECT_EQ(Refusal(64, 1, kRice, 7, {62, 1}), "believed");
  EXPECT_EQ(Refusal(64, 1, kRice, 7, {63, 1}), "believed");
  EXPECT_EQ(Refusal(64, 1, kRice, 7, {64, 1}), "a place is past its end");
  // Quotients of 55, of 7 (times 8), and of 8, which is past the end without its remainder.
  EXPECT_EQ(Refusal(64, 1, kRice, 0, {0, 0, 0, 0, 0, 0, 0x80}), "believed");
  EXPECT_EQ(Refusal(64, 1, kRice, 3, {0, 0b10000000}), "believed");
  EXPECT_EQ(Refusal(64, 1, kRice, 3, {0, 0, 1}), "a place is past its end");
  // Two gaps that are each within the piece.
  EXPECT_EQ(Refusal(64, 2, kRice, 6, {62, 0, 0b11}), "believed");
  EXPECT_EQ(Refusal(64, 2, kRice, 6, {63, 0, 0b11}), "a place is past its end");
  // As far as 32 bits go.
  EXPECT_EQ(Refusal(kMaxPieceLength, 1, kRice, 30, {255, 255, 255, 63, 0b100}), "believed");
  EXPECT_EQ(Refusal(kMaxPieceLength, 1, kRice, 30, {255, 255, 255, 63, 0b1000}),
            "a place is past its end");
  EXPECT_EQ(Refusal(kMaxPieceLength, 1, kRice, 30, {0, 0, 0, 0, 0b10000}),
            "a place is past its end");
}

}  // namespace
}  // namespace adaptive_train::index_coding_test
