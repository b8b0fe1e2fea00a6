// Sparse messages compared with plain loops after a round trip, and their lengths.
#include "runtime/compress/sparse_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/int4.h"
#include "tests/unit/runtime_compress/selection.h"

namespace adaptive_train::sparse_message_test {
namespace {

constexpr ValueFormat kFormats[] = {ValueFormat::kFloat32, ValueFormat::kBFloat16,
                                    ValueFormat::kFloat8, ValueFormat::kInt4};
constexpr std::uint32_t kBucket = 3;

/// The expected result of AddTo.
void PlainAdd(const std::vector<Selection>& pieces, std::vector<float>& sum,
              std::vector<std::uint64_t>& bitmaps) {
  std::size_t first = 0, word = 0;
  for (const Selection& piece : pieces) {
    for (std::size_t i = 0; i < piece.places.size(); ++i) {
      sum[first + piece.places[i]] += piece.values[i];
      bitmaps[word + piece.places[i] / 64] |= std::uint64_t{1} << piece.places[i] % 64;
    }
    first += static_cast<std::size_t>(piece.length);
    word += BitmapWords(piece.length);
  }
}

void ExpectRead(const std::vector<Selection>& pieces, ValueFormat format,
                const MessageBytes& bytes) {
  const auto lengths = LengthsOf(pieces);
  EXPECT_LE(bytes.size(), MaxMessageBytes(lengths, format));
  const auto message = SparseMessage::Read(bytes, kBucket, format, lengths);
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_TRUE(message->finite());

  std::size_t length = 0, words = 0;
  std::int64_t count = 0;
  for (const Selection& piece : pieces) {
    length += static_cast<std::size_t>(piece.length);
    words += BitmapWords(piece.length);
    count += piece.count();
  }
  EXPECT_EQ(message->count(), count);
  std::vector<float> expected(length), out(length, NAN);
  std::vector<std::uint64_t> expected_marks(words), marks(words);
  PlainAdd(pieces, expected, expected_marks);
  message->WriteTo(out);
  EXPECT_TRUE(out == expected);

  // Added to what is there.
  std::fill(out.begin(), out.end(), 0.25F);
  std::fill(expected.begin(), expected.end(), 0.25F);
  for (std::size_t i = 0; i < words; i += 2) {
    marks[i] = 1;
    expected_marks[i] |= 1;
  }
  PlainAdd(pieces, expected, expected_marks);
  message->AddTo(out, marks);
  EXPECT_TRUE(out == expected);
  EXPECT_TRUE(marks == expected_marks);
}

void ExpectRoundTrip(const std::vector<Selection>& pieces, ValueFormat format) {
  ExpectRead(pieces, format, MessageOf(pieces, format, kBucket));
}

TEST(SparseMessage, RoundTripsOfSizes) {
  for (const int smallest : {kernels::kLeastSmallest, 500, kernels::kMostSmallest}) {
    for (const double density : {0.0, 0.05, 0.3, 1.0}) {
      for (const std::uint32_t sizes : {1, 4, 7, 15, 20, 31, 50, 64}) {
        SparseMessageWriter writer(kBucket, ValueFormat::kFloat8);
        std::vector<Selection> pieces;
        for (const std::int64_t length : {0, 1, 2, 63, 64, 997}) {
          pieces.push_back(Sizes(Select(length, density, 21), smallest, sizes));
          AddTo(writer, pieces.back(), ValueFormat::kFloat8, smallest);
          pieces.push_back(Select(length, density, 22));  // bfloat16 in between
          AddTo(writer, pieces.back(), ValueFormat::kFloat8);
        }
        ExpectRead(pieces, ValueFormat::kFloat8, writer.Finish());
      }
    }
  }
}

TEST(SparseMessage, RoundTripsOfWholePiecesInFourBits) {
  for (const std::int64_t length : {128, 129, 997, 5000}) {
    SparseMessageWriter writer(kBucket, ValueFormat::kInt4);
    std::vector<Selection> pieces = {Select(length, 1, 5), Select(70, 0.4, 6),
                                     Select(length, 1, 7)};
    for (Selection& piece : pieces) {
      if (piece.count() < piece.length) {  // bfloat16 in between
        AddTo(writer, piece, ValueFormat::kInt4);
        continue;
      }
      std::vector<std::byte> packed(kernels::Int4Bytes(length));
      ASSERT_TRUE(kernels::cpu::PackInt4(
          {.count = length, .gradients = piece.values.data(), .packed = packed.data()}));
      writer.Add(length, piece.bitmap.data(), length, packed.data(), kPackedWhole);
      kernels::cpu::UnpackInt4(length, packed.data(), piece.values.data());
    }
    const MessageBytes bytes = writer.Finish();
    EXPECT_LE(static_cast<double>(bytes.size()), 2 * 4.2 / 8 * static_cast<double>(length) + 300);
    ExpectRead(pieces, ValueFormat::kInt4, bytes);
  }
}

TEST(SparseMessage, ValuesThroughZstdAreShorterAndTheSame) {
  for (const double density : {0.4, 1.0}) {
    const std::vector<Selection> pieces = {Select(5000, density, 5), Select(20'000, density, 6)};
    const auto message = [&](ValueFormat format, SparseMessageWriter::Lossless lossless) {
      SparseMessageWriter writer(kBucket, format);
      for (const Selection& piece : pieces) AddTo(writer, piece, format);
      return writer.Finish(lossless);
    };
    const ValueFormat format = ValueFormat::kBFloat16;
    const MessageBytes plain = message(format, SparseMessageWriter::Lossless::kNone);
    const MessageBytes shorter = message(format, SparseMessageWriter::Lossless::kZstd);
    EXPECT_LT(shorter.size(), plain.size());
    ExpectRead(pieces, format, shorter);
  }
  SparseMessageWriter writer(kBucket, ValueFormat::kBFloat16);
  writer.NotFinite();
  const MessageBytes silent = writer.Finish(SparseMessageWriter::Lossless::kZstd);
  EXPECT_EQ(silent.size(), kMessageHeaderBytes);
}

TEST(SparseMessage, BitsPerParameterOfSizes) {
  struct Bound {
    std::uint32_t sizes;
    double bits;  // of a value, one in 50 of which is an escape
  };
  for (const Bound& bound : {Bound{7, 4.2}, {15, 5.2}, {31, 6.2}, {60, 7.2}, {64, 8}}) {
    const Selection piece = Sizes(Select(262144, 0.3, 5), 500, bound.sizes);
    SparseMessageWriter writer(kBucket, ValueFormat::kFloat8);
    AddTo(writer, piece, ValueFormat::kFloat8, 500);
    const double bits = 1 + bound.bits * static_cast<double>(piece.count()) / 262144;
    EXPECT_LE(8.0 * static_cast<double>(writer.Finish().size()) / 262144, bits + 0.01)
        << bound.sizes;
  }
}

TEST(SparseMessage, RoundTripsOfOnePiece) {
  for (const std::int64_t length : {0, 1, 2, 63, 64, 65, 127, 128, 129, 997, 7919}) {
    for (const double density : {0.0, 0.001, 0.0125, 0.05, 0.1, 0.3, 0.5, 0.9, 0.99, 1.0}) {
      for (const ValueFormat format : kFormats) {
        SCOPED_TRACE(testing::Message() << length << " elements, density " << density << ", "
                                        << BytesOf(format) << " bytes each");
        ExpectRoundTrip({Select(length, density, 11)}, format);
      }
    }
  }
}

TEST(SparseMessage, RoundTripsOfAMillionElements) {
  for (const double density : {0.0, 0.00001, 0.0125, 0.2, 0.6, 1.0})
    ExpectRoundTrip({Select(1000000, density, 12)}, ValueFormat::kBFloat16);
  ExpectRoundTrip({Select(1000000, 0.1, 13, 100)}, ValueFormat::kFloat32);
}

TEST(SparseMessage, RoundTripsOfManyPieces) {
  for (const ValueFormat format : kFormats) {
    std::vector<Selection> pieces;
    ExpectRoundTrip(pieces, format);
    for (const std::int64_t length : {0, 1, 64, 5000, 0, 3, 129, 2000, 70, 0}) {
      const double density = static_cast<double>(pieces.size() % 5) / 4;
      pieces.push_back(Select(length, density, pieces.size()));
      ExpectRoundTrip(pieces, format);
    }
  }
}

TEST(SparseMessage, BitsPerParameter) {
  struct Bound {
    double density, bits;
  };
  for (const Bound& bound : {Bound{0.30, 6.2}, {0.10, 2.25}, {0.05, 1.25}}) {
    const Selection piece = Select(262144, bound.density, 5);
    const auto bytes = MessageOf({piece}, ValueFormat::kBFloat16, kBucket);
    // More bits in proportion to the selection's actual density.
    const double density = static_cast<double>(piece.count()) / 262144;
    EXPECT_LE(8.0 * static_cast<double>(bytes.size()) / 262144,
              bound.bits * std::max(1.0, density / bound.density));
  }
}

TEST(SparseMessage, NoMessageIsLongerThanTheBoundAndOneIsAsLong) {
  for (const ValueFormat format : kFormats) {
    for (std::int64_t length = 0; length <= 300; ++length) {
      std::size_t longest = 0;
      std::vector<Selection> candidates{Select(length, 1, 1)};
      // All but one element, of which any can be missing.
      for (std::int64_t missing = 0; missing < length; ++missing) {
        Selection selection = candidates.front();
        selection.bitmap[static_cast<std::size_t>(missing) / 64] ^= std::uint64_t{1}
                                                                    << missing % 64;
        selection.places.erase(selection.places.begin() + missing);
        selection.values.pop_back();
        candidates.push_back(std::move(selection));
      }
      for (const double density : {0.1, 0.5, 0.8}) candidates.push_back(Select(length, density, 1));
      for (const Selection& candidate : candidates)
        longest = std::max(longest, MessageOf({candidate}, format, kBucket).size());
      const std::int64_t lengths[] = {length};
      EXPECT_EQ(longest, MaxMessageBytes(lengths, format)) << length << " elements";
    }
  }
}

TEST(SparseMessage, TheBoundOfAChunkIsThatOfItsPieces) {
  const std::int64_t lengths[] = {0, 1, 100, 7};
  std::size_t pieces = kMessageHeaderBytes;
  for (const std::int64_t& length : lengths)
    pieces += MaxMessageBytes({&length, 1}, ValueFormat::kFloat32) - kMessageHeaderBytes;
  EXPECT_EQ(MaxMessageBytes(lengths, ValueFormat::kFloat32), pieces);
  EXPECT_EQ(MaxMessageBytes({}, ValueFormat::kFloat32), kMessageHeaderBytes);
}

TEST(SparseMessage, NotFiniteIsAHeaderAlone) {
  for (const ValueFormat format : kFormats) {
    const Selection piece = Select(100, 0.5, 1);
    SparseMessageWriter writer(kBucket, format);
    AddTo(writer, piece, format);
    writer.NotFinite();
    AddTo(writer, piece, format);
    const auto bytes = writer.Finish();
    EXPECT_EQ(bytes.size(), kMessageHeaderBytes);
    const std::int64_t lengths[] = {100, 100};
    const auto message = SparseMessage::Read(bytes, kBucket, format, lengths);
    ASSERT_TRUE(message) << message.error().message;
    EXPECT_FALSE(message->finite());
    EXPECT_EQ(message->count(), 0);
    std::vector<float> sum(200, 2.0F);
    std::vector<std::uint64_t> marks(4);
    message->AddTo(sum, marks);
    EXPECT_EQ(sum, std::vector<float>(200, 2.0F));
    EXPECT_EQ(marks, std::vector<std::uint64_t>(4));
    message->WriteTo(sum);
    EXPECT_EQ(sum, std::vector<float>(200));
  }
}

TEST(SparseMessage, AWriterCanBeUsedAgain) {
  const std::vector<Selection> first{Select(1000, 0.5, 1)}, second{Select(300, 0.05, 2)};
  SparseMessageWriter writer(kBucket, ValueFormat::kFloat32);
  for (const auto* pieces : {&first, &second, &first}) {
    AddTo(writer, pieces->front(), ValueFormat::kFloat32);
    EXPECT_EQ(writer.Finish(), MessageOf(*pieces, ValueFormat::kFloat32, kBucket));
    writer.NotFinite();
    EXPECT_EQ(writer.Finish().size(), kMessageHeaderBytes);
  }
}

TEST(SparseMessage, NoBitmapIsReadWhereAllOrNoElementsAreSent) {
  const float values[] = {1, 2, 3};
  SparseMessageWriter writer(kBucket, ValueFormat::kFloat32);
  writer.Add(3, nullptr, 3, values);
  writer.Add(70, nullptr, 0, nullptr);
  const auto bytes = writer.Finish();
  const std::int64_t lengths[] = {3, 70};
  const auto message = SparseMessage::Read(bytes, kBucket, ValueFormat::kFloat32, lengths);
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_EQ(message->count(), 3);
}

}  // namespace
}  // namespace adaptive_train::sparse_message_test
