// Damaged, truncated, misdirected or malicious messages: none is accepted, and each refusal says
// why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/int4.h"
#include "runtime/compress/sparse_message.h"
#include "tests/unit/runtime_compress/selection.h"

namespace adaptive_train::sparse_message_refusals_test {
namespace {

using Bytes = MessageBytes;
using testing::HasSubstr;

constexpr std::uint32_t kBucket = 3;
constexpr ValueFormat kFormat = ValueFormat::kBFloat16;
// Places in a message, from its first byte.
constexpr std::size_t kVersionAt = 4, kValueFormatAt = 5, kFlagsAt = 6, kBucketAt = 8,
                      kPiecesAt = 12, kPayloadBytesAt = 16, kChecksumAt = 24;
constexpr std::size_t kEntryBytes = 20, kCount = 0, kIndexBytes = 4, kEscapes = 8, kSmallest = 12,
                      kCoding = 14, kRiceBits = 15, kCodeBits = 16, kZeros = 17;

/// Rice codes, a bitmap, all elements, none.
std::vector<Selection> Pieces() {
  return {Select(200, 0.05, 1), Select(60, 0.75, 2), Select(9, 1, 3), Select(7, 0, 4)};
}

Bytes Message() { return MessageOf(Pieces(), kFormat, kBucket); }

std::string Refusal(const Bytes& bytes) {
  // A copy of exactly this length, so that a sanitizer sees every step past its end.
  const Bytes copy(bytes);
  const auto message = SparseMessage::Read(copy, kBucket, kFormat, LengthsOf(Pieces()));
  if (message) return "believed";
  EXPECT_EQ(message.error().exit_code, ExitCode::kRankFailure);
  EXPECT_EQ(message.error().message.find('\n'), std::string::npos);
  return message.error().message;
}

template <class T>
Bytes With(Bytes bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

/// In a message of so many pieces, their entries being its end.
std::size_t EntryAt(const Bytes& message, std::size_t pieces, std::size_t piece) {
  return message.size() - (pieces - piece) * kEntryBytes;
}

/// The same bytes with a correct payload length and checksum.
Bytes Sealed(Bytes bytes) {
  bytes = With(std::move(bytes), kPayloadBytesAt, std::uint64_t{bytes.size() - 32});
  return With(bytes, kChecksumAt, MessageChecksum(bytes));
}

TEST(SparseMessageRefusals, EveryBitMatters) {
  const Bytes message = Message();
  ASSERT_EQ(Refusal(message), "believed");
  for (std::size_t i = 0; i < message.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = message;
      damaged[i] ^= static_cast<std::byte>(1 << bit);
      const char* why = i < kVersionAt                            ? "no sparse message"
                        : i == kVersionAt                         ? "format version"
                        : i >= kPayloadBytesAt && i < kChecksumAt ? "bytes after the header"
                                                                  : "the checksum is wrong";
      EXPECT_THAT(Refusal(damaged), HasSubstr(why)) << "byte " << i << ", bit " << bit;
    }
  }
}

TEST(SparseMessageRefusals, EveryCutAndEveryAddition) {
  const Bytes message = Message();
  for (std::size_t size = 0; size < message.size(); ++size) {
    const Bytes cut(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(Refusal(cut), HasSubstr(size < kMessageHeaderBytes ? "bytes are no message"
                                                                   : "bytes after the header"));
    if (size < kMessageHeaderBytes) continue;
    EXPECT_NE(Refusal(Sealed(cut)), "believed") << size;
  }
  Bytes longer = message;
  for (int more = 1; more <= 20; ++more) {
    longer.push_back(std::byte{0});
    EXPECT_THAT(Refusal(longer), HasSubstr("bytes after the header"));
    EXPECT_NE(Refusal(Sealed(longer)), "believed") << more;  // entries are what is at the end
  }
}

TEST(SparseMessageRefusals, AnotherBucketsMessage) {
  EXPECT_EQ(Refusal(MessageOf(Pieces(), kFormat, 4)), "of bucket 4, expected 3");
  SparseMessageWriter writer(4, kFormat);
  writer.NotFinite();
  EXPECT_EQ(Refusal(writer.Finish()), "of bucket 4, expected 3");
}

TEST(SparseMessageRefusals, AnotherChunksMessage) {
  EXPECT_EQ(Refusal(MessageOf(Pieces(), ValueFormat::kFloat32, kBucket)),
            "value format 0, expected 1");
  std::vector<Selection> pieces = Pieces();
  pieces.pop_back();
  EXPECT_EQ(Refusal(MessageOf(pieces, kFormat, kBucket)), "3 pieces, expected 4");
  pieces.push_back(Select(8, 1, 1));
  EXPECT_EQ(Refusal(MessageOf(pieces, kFormat, kBucket)), "piece 3: more elements than it has");
  EXPECT_EQ(Refusal(MessageOf({}, kFormat, kBucket)), "0 pieces, expected 4");
}

TEST(SparseMessageRefusals, WrongHeadersWithARightChecksum) {
  const Bytes message = Message();
  const auto refusal = [&](std::size_t offset, auto value) {
    return Refusal(Sealed(With(message, offset, value)));
  };
  EXPECT_EQ(refusal(kVersionAt, std::uint8_t{1}), "format version 1, expected 6");
  EXPECT_EQ(refusal(kValueFormatAt, std::uint8_t{7}), "value format 7, expected 1");
  EXPECT_EQ(refusal(kFlagsAt, std::uint8_t{2}),
            "153 bytes of values and indices, expected less than 153");
  EXPECT_EQ(refusal(kFlagsAt, std::uint8_t{3}), "unknown flags");
  EXPECT_EQ(refusal(kFlagsAt, std::uint8_t{4}), "unknown flags");
  EXPECT_EQ(refusal(kFlagsAt + 1, std::uint8_t{1}), "unknown flags");
  EXPECT_EQ(refusal(kFlagsAt, std::uint8_t{1}), "4 pieces, expected 0");
  EXPECT_EQ(refusal(kBucketAt, UINT32_MAX), "of bucket 4294967295, expected 3");
  EXPECT_EQ(refusal(kPiecesAt, UINT32_MAX), "4294967295 pieces, expected 4");
  const Bytes silent = With(With(message, kFlagsAt, std::uint8_t{1}), kPiecesAt, 0U);
  EXPECT_EQ(Refusal(Sealed(silent)), "not finite, and yet there are values");
  const Bytes header(message.begin(), message.begin() + kMessageHeaderBytes + 40);
  EXPECT_EQ(Refusal(Sealed(header)), "too short for its pieces");
}

TEST(SparseMessageRefusals, WrongPiecesWithARightChecksum) {
  const Bytes message = Message();
  const auto entry_at = [&](std::size_t piece) { return EntryAt(message, 4, piece); };
  ASSERT_EQ(message[entry_at(0) + kCoding], std::byte{2});  // Rice
  ASSERT_EQ(message[entry_at(1) + kCoding], std::byte{1});  // bitmap
  const auto refusal = [&](std::size_t piece, std::size_t field, auto value) {
    return Refusal(Sealed(With(message, entry_at(piece) + field, value)));
  };
  for (const std::size_t piece : {0, 1, 2, 3}) {
    for (const std::uint32_t count : {5U, UINT32_MAX})
      EXPECT_THAT(refusal(piece, kCount, count),
                  HasSubstr("bytes of values and indices, expected"));
    EXPECT_THAT(refusal(piece, kIndexBytes, UINT32_MAX),
                HasSubstr("bytes of values and indices, expected"));
  }
  EXPECT_EQ(refusal(0, kCoding, std::uint8_t{9}), "piece 0: its index coding is unknown");
  EXPECT_EQ(refusal(0, kRiceBits, std::uint8_t{255}), "piece 0: its Rice parameter is too large");
  EXPECT_EQ(refusal(1, kSmallest, std::uint16_t{4}), "piece 1: sizes where there are none");
  EXPECT_EQ(refusal(1, kCodeBits, std::uint8_t{8}), "piece 1: sizes where there are none");
  EXPECT_EQ(refusal(1, kEscapes, 1U), "piece 1: sizes where there are none");
  for (const std::size_t zero : {0, 1, 2})
    EXPECT_EQ(refusal(3, kZeros + zero, std::uint8_t{1}), "piece 3: unknown flags");
}

/// As many values and as many bytes of indices, but of other pieces.
TEST(SparseMessageRefusals, PiecesThatTakeFromOthers) {
  const Bytes message = Message();
  const auto refusal = [&](std::size_t field, std::size_t more, std::size_t less) {
    Bytes bytes = message;
    for (const std::size_t piece : {more, less}) {
      std::uint32_t number = 0;
      std::byte* const at = bytes.data() + EntryAt(bytes, 4, piece) + field;
      std::memcpy(&number, at, sizeof number);
      number += piece == more ? 1U : -1U;
      std::memcpy(at, &number, sizeof number);
    }
    return Refusal(Sealed(bytes));
  };
  EXPECT_EQ(refusal(kCount, 0, 1), "piece 0: it has another number of gaps");
  EXPECT_EQ(refusal(kCount, 1, 2), "piece 1: the bitmap has another number of elements");
  EXPECT_EQ(refusal(kCount, 2, 1), "piece 1: the bitmap has another number of elements");
  EXPECT_EQ(refusal(kCount, 3, 2), "piece 2: its index coding is wrong");
  EXPECT_EQ(refusal(kIndexBytes, 3, 0), "piece 0: it has another number of gaps");
  EXPECT_EQ(refusal(kIndexBytes, 2, 1), "piece 1: the bitmap has a wrong length");
}

/// Why a message with one piece of sizes, completely sent, is refused.
std::string RefusalOfSizes(const Bytes& bytes, std::int64_t length) {
  const Bytes copy = Sealed(bytes);
  const auto read = SparseMessage::Read(copy, kBucket, ValueFormat::kFloat8, {&length, 1});
  return read ? "believed" : read.error().message;
}

Bytes MessageOfSizes(const Selection& piece) {
  SparseMessageWriter writer(kBucket, ValueFormat::kFloat8);
  AddTo(writer, piece, ValueFormat::kFloat8, 500);
  return writer.Finish();
}

TEST(SparseMessageRefusals, WrongSizes) {
  const Bytes message = MessageOfSizes(Sizes(Select(9, 1, 3), 500));
  const auto refusal = [&](std::uint16_t smallest) {
    return RefusalOfSizes(With(message, EntryAt(message, 1, 0) + kSmallest, smallest), 9);
  };
  for (const std::uint16_t smallest : {4, 500, 892}) EXPECT_EQ(refusal(smallest), "believed");
  EXPECT_EQ(refusal(3), "piece 0: a smallest size of number 3");
  EXPECT_EQ(refusal(893), "piece 0: a smallest size of number 893");
  EXPECT_EQ(refusal(UINT16_MAX), "piece 0: a smallest size of number 65535");
  EXPECT_EQ(refusal(0), "piece 0: sizes where there are none");
}

TEST(SparseMessageRefusals, WrongPiecesInFourBits) {
  constexpr std::int64_t kLength = 200;
  const std::vector<float> values(kLength, 3.0F);
  std::vector<std::byte> packed(kernels::Int4Bytes(kLength));
  kernels::cpu::PackInt4({.count = kLength, .gradients = values.data(), .packed = packed.data()});
  SparseMessageWriter writer(kBucket, ValueFormat::kInt4);
  writer.Add(kLength, nullptr, kLength, packed.data(), kPackedWhole);
  const MessageBytes message = writer.Finish();
  const auto refusal = [&](std::size_t place, auto value) {
    const Bytes copy = Sealed(With(message, place, value));
    const auto read = SparseMessage::Read(copy, kBucket, ValueFormat::kInt4, {&kLength, 1});
    return read ? "believed" : read.error().message;
  };
  const std::size_t entry = EntryAt(message, 1, 0), values_at = kMessageHeaderBytes;
  EXPECT_EQ(refusal(entry + kSmallest, std::uint16_t{1}), "believed");
  EXPECT_EQ(refusal(entry + kSmallest, std::uint16_t{2}), "piece 0: packed, and not whole");
  EXPECT_EQ(refusal(entry + kCount, std::uint32_t{199}), "piece 0: packed, and not whole");
  EXPECT_EQ(refusal(entry + kCount, std::uint32_t{0}), "piece 0: packed, and not whole");
  EXPECT_EQ(refusal(entry + kCodeBits, std::uint8_t{4}), "piece 0: sizes where there are none");
  EXPECT_EQ(refusal(entry + kSmallest, std::uint16_t{0}),
            "104 bytes of values and indices, expected 400");
  for (const std::uint16_t scale : {0x7f80, 0x7fc0, 0x8000, 0x7e00})
    for (const std::size_t block : {0, 66})
      EXPECT_EQ(refusal(values_at + block, scale), "a value is not finite") << scale;
  EXPECT_EQ(refusal(values_at, std::uint16_t{0x7d80}), "believed") << "2^124";
}

TEST(SparseMessageRefusals, ValuesThatAreNotWhatZstdMade) {
  constexpr std::int64_t kLength = 20'000;
  std::vector<float> values(kLength);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 11) - 5;
  std::vector<std::byte> packed(kernels::Int4Bytes(kLength));
  kernels::cpu::PackInt4({.count = kLength, .gradients = values.data(), .packed = packed.data()});
  SparseMessageWriter writer(kBucket, ValueFormat::kInt4);
  writer.Add(kLength, nullptr, kLength, packed.data(), kPackedWhole);
  const MessageBytes message = writer.Finish(SparseMessageWriter::Lossless::kZstd);
  ASSERT_EQ(message[kFlagsAt], std::byte{2});
  const auto refusal = [&](const Bytes& bytes) {
    const Bytes sealed = Sealed(bytes);
    const auto read = SparseMessage::Read(sealed, kBucket, ValueFormat::kInt4, {&kLength, 1});
    return read ? "believed" : read.error().message;
  };
  EXPECT_EQ(refusal(message), "believed");
  const auto begin = message.begin() + kMessageHeaderBytes;
  Bytes cut = message;
  cut.erase(cut.begin() + kMessageHeaderBytes, cut.begin() + kMessageHeaderBytes + 9);
  EXPECT_EQ(refusal(cut), "its values are not what zstd made of them");
  Bytes longer = message;
  longer.insert(longer.begin() + (begin - message.begin()) + 100, std::byte{0});
  EXPECT_EQ(refusal(longer), "its values are not what zstd made of them");
  Bytes no_shorter = message;
  no_shorter.insert(no_shorter.begin() + (begin - message.begin()), packed.size(), std::byte{0});
  EXPECT_EQ(refusal(no_shorter),
            fmt::format("{} bytes of values and indices, expected less than {}",
                        EntryAt(no_shorter, 1, 0) - kMessageHeaderBytes, packed.size()));
  const std::size_t entry = EntryAt(message, 1, 0);
  Bytes index = message;
  index[entry + sizeof(std::uint32_t)] = std::byte{255};  // bytes of an index that is not there
  EXPECT_NE(refusal(index), "believed");
  Bytes bare(message.begin(), begin);
  bare.insert(bare.end(), message.end() - 20, message.end());
  EXPECT_EQ(refusal(bare), "its values are not what zstd made of them");
}

TEST(SparseMessageRefusals, WrongPackingOfSizes) {
  constexpr std::int64_t kLength = 129;
  Selection piece = Select(kLength, 1, 3);
  std::ranges::fill(piece.values, 0.25f);  // size number 500
  piece.values[128] = 64;                  // 32 above it: an escape of 4 bits
  const Bytes message = MessageOfSizes(piece);
  const std::size_t entry = EntryAt(message, 1, 0);
  ASSERT_EQ(message[entry + kCodeBits], std::byte{4});
  ASSERT_EQ(message[entry + kEscapes], std::byte{1});
  constexpr std::size_t kCodes = kMessageHeaderBytes, kLast = kCodes + 64;
  ASSERT_EQ(entry, kCodes + 96 + 1);
  const auto refusal = [&](std::size_t place, auto value) {
    return RefusalOfSizes(With(message, place, value), kLength);
  };
  for (const std::uint8_t bits : {0, 3, 9, 255})
    EXPECT_EQ(refusal(entry + kCodeBits, bits),
              "piece 0: codes of " + std::to_string(bits) + " bits");
  EXPECT_EQ(refusal(entry + kCodeBits, std::uint8_t{5}),
            "97 bytes of values and indices, expected 121");
  EXPECT_EQ(refusal(entry + kCodeBits, std::uint8_t{8}), "piece 0: 1 escapes");
  EXPECT_EQ(refusal(entry + kEscapes, 130U), "piece 0: 130 escapes");
  EXPECT_EQ(refusal(entry + kEscapes, 2U), "97 bytes of values and indices, expected 98");
  constexpr auto kOtherwise = "its values are not packed as it says";
  EXPECT_EQ(refusal(kCodes, std::uint8_t{0x07}), kOtherwise);  // one escape more
  EXPECT_EQ(refusal(kLast, std::uint8_t{0x00}), kOtherwise);   // one less
  EXPECT_EQ(refusal(kLast, std::uint8_t{0x17}), kOtherwise);   // behind the last
  EXPECT_EQ(refusal(kLast + 31, std::uint8_t{0x80}), kOtherwise);
  // An escape after the last, which belongs to no code.
  const Bytes escape = With(message, kLast, std::uint8_t{0x70});
  EXPECT_EQ(RefusalOfSizes(With(escape, kLast + 32, std::uint8_t{0}), kLength), kOtherwise);
  EXPECT_EQ(refusal(kCodes, std::uint8_t{0x06}), "believed");
}

TEST(SparseMessageRefusals, ValuesThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const ValueFormat format : {ValueFormat::kFloat32, ValueFormat::kBFloat16}) {
    for (std::size_t place = 0; place < 40; ++place) {
      for (const float value : {kInfinity, -kInfinity, std::nanf(""), 3e38F, -0.0F, 1e-40F}) {
        Selection piece = Select(40, 1, 1);
        piece.values[place] = value;
        const auto bytes = MessageOf({piece}, format, kBucket);
        const std::int64_t lengths[] = {40};
        const auto message = SparseMessage::Read(bytes, kBucket, format, lengths);
        ASSERT_EQ(message.has_value(), std::isfinite(value)) << value << " at " << place;
        if (message) continue;
        EXPECT_EQ(message.error().message, "a value is not finite");
      }
    }
  }
}

}  // namespace
}  // namespace adaptive_train::sparse_message_refusals_test
