// Reads sparse messages, which are untrusted.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/int4.h"
#include "kernels/scalar.h"
#include "runtime/compress/lossless.h"
#include "runtime/compress/sparse_message.h"
#include "runtime/compress/sparse_message_layout.h"

namespace adaptive_train {

using sparse_message::Header;
using sparse_message::kFormatVersion;
using sparse_message::kMagic;
using sparse_message::kNotFiniteFlag;
using sparse_message::kZstdFlag;
using sparse_message::PieceEntry;
using sparse_message::ValueBytes;

namespace {

template <class T>
T Load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

tl::unexpected<Error> Refuse(std::string why) {
  return Fail(std::move(why), ExitCode::kRankFailure);
}

/// The bits of a value and their conversion to float32. A float32 is finite unless all bits of its
/// exponent are set; a bfloat16 is its upper half.
template <ValueFormat format>
struct Value {
  explicit Value(int) {}

  using Bits = std::conditional_t<format == ValueFormat::kFloat32, std::uint32_t, std::uint16_t>;
  static constexpr Bits kExponent = static_cast<Bits>(0x7f80'0000U >> (32 - 8 * sizeof(Bits)));

  static Bits BitsAt(const std::byte* values, std::size_t i) {
    Bits bits;
    std::memcpy(&bits, values + i * sizeof bits, sizeof bits);
    return bits;
  }
  float At(const std::byte* values, std::size_t i) const {
    if constexpr (format == ValueFormat::kFloat32) {
      return std::bit_cast<float>(BitsAt(values, i));
    } else {
      return kernels::ToFloat(kernels::BFloat16{BitsAt(values, i)});
    }
  }
};

template <>
struct Value<ValueFormat::kFloat8> {
  explicit Value(int smallest) : smallest_(static_cast<std::uint32_t>(smallest)) {}

  float At(const std::byte* values, std::size_t i) const {
    const auto code = static_cast<std::uint32_t>(values[i]);
    return std::bit_cast<float>((code >> 7) << 31 | (smallest_ + (code & 127U))
                                                        << kernels::kFloat8Shift);
  }

 private:
  std::uint32_t smallest_;
};

/// Calls element(place, value) in ascending order for all elements of a piece without a bitmap.
/// Calls mark(i, bits) with the bits of word i of the equivalent bitmap, in one or several parts.
template <ValueFormat format, class Element, class Mark>
void VisitPiece(const PieceIndex& index, const std::byte* values, Value<format> value,
                Element element, Mark mark) {
  if (index.coding == IndexCoding::kNone) {
    const auto count = static_cast<std::size_t>(index.count);
    for (std::size_t i = 0; i < count; ++i) element(i, value.At(values, i));
    for (std::size_t i = 0; i < count / 64; ++i) mark(i, ~std::uint64_t{0});
    if (count % 64 != 0) mark(count / 64, (std::uint64_t{1} << count % 64) - 1);
    return;
  }
  std::size_t next = 0;
  ForEachRicePlace(index, [&](std::size_t place) {
    element(place, value.At(values, next));
    mark(place / 64, std::uint64_t{1} << place % 64);
    ++next;
  });
}

/// Calls visit(constant) with the format as a constant. Not for kInt4, whose pieces are whole.
template <class Visit>
void WithFormat(ValueFormat format, Visit visit) {
  switch (format) {
    case ValueFormat::kInt4:
      break;
    case ValueFormat::kFloat32:
      return visit(std::integral_constant<ValueFormat, ValueFormat::kFloat32>());
    case ValueFormat::kBFloat16:
      return visit(std::integral_constant<ValueFormat, ValueFormat::kBFloat16>());
    case ValueFormat::kFloat8:
      return visit(std::integral_constant<ValueFormat, ValueFormat::kFloat8>());
  }
}

/// For kFloat8 all are finite, since the smallest was checked. `count` values.
bool AllFinite(std::span<const std::byte> values, ValueFormat format, std::int64_t count) {
  if (format == ValueFormat::kInt4) return kernels::cpu::Int4ScalesRight(count, values.data());
  bool finite = true;
  WithFormat(format, [&](auto constant) {
    if constexpr (constant.value != ValueFormat::kFloat8) {
      using Of = Value<constant.value>;
      typename Of::Bits infinite = 0;  // no early end: this loop vectorizes
      for (std::size_t i = 0; i < values.size() / sizeof infinite; ++i)
        infinite |= (Of::BitsAt(values.data(), i) & Of::kExponent) == Of::kExponent;
      finite = infinite == 0;
    }
  });
  return finite;
}

void MarkAll(std::int64_t length, std::uint64_t* marks) {
  for (std::int64_t i = 0; i < length / 64; ++i) marks[i] = ~std::uint64_t{0};
  if (length % 64 != 0) marks[length / 64] |= (std::uint64_t{1} << length % 64) - 1;
}

/// Checks everything that does not need the payload.
Result<Header> ReadHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Header))
    return Refuse(fmt::format("{} bytes are no message", bytes.size()));
  const auto header = Load<Header>(bytes, 0);
  if (header.magic != kMagic) return Refuse("no sparse message");
  if (header.format_version != kFormatVersion)
    return Refuse(
        fmt::format("format version {}, expected {}", header.format_version, kFormatVersion));
  if (header.payload_bytes != bytes.size() - sizeof(Header))
    return Refuse(fmt::format("{} bytes after the header, which says {}",
                              bytes.size() - sizeof(Header), header.payload_bytes));
  if (header.checksum != MessageChecksum(bytes)) return Refuse("the checksum is wrong");
  return header;
}

Result<void> CheckExpected(const Header& header, std::uint32_t bucket, ValueFormat format,
                           std::size_t pieces) {
  if (header.value_format != static_cast<std::uint8_t>(format))
    return Refuse(
        fmt::format("value format {}, expected {}", header.value_format, static_cast<int>(format)));
  if (header.flags > kZstdFlag || header.zero != 0) return Refuse("unknown flags");
  if (header.bucket != bucket)
    return Refuse(fmt::format("of bucket {}, expected {}", header.bucket, bucket));
  if (header.flags == kNotFiniteFlag) pieces = 0;
  if (header.pieces != pieces)
    return Refuse(fmt::format("{} pieces, expected {}", header.pieces, pieces));
  if (header.flags == kNotFiniteFlag && header.payload_bytes != 0)
    return Refuse("not finite, and yet there are values");
  if (header.payload_bytes / sizeof(PieceEntry) < pieces) return Refuse("too short for its pieces");
  return {};
}

/// Checks what `entry` says about its values.
Result<void> CheckSizes(const PieceEntry& entry, ValueFormat format, std::int64_t length) {
  const auto* zeros = std::begin(entry.zeros);
  if (std::any_of(zeros, std::end(entry.zeros), [](std::uint8_t byte) { return byte != 0; }))
    return Refuse("unknown flags");
  const ValueFormat own = FormatOfPiece(format, entry.smallest);
  if (own == ValueFormat::kInt4 && (entry.smallest != kPackedWhole || entry.count != length))
    return Refuse("packed, and not whole");
  if (own != ValueFormat::kFloat8) {
    const int expected = own == ValueFormat::kInt4 ? kPackedWhole : 0;
    if (entry.smallest != expected || entry.code_bits != 0 || entry.escapes != 0)
      return Refuse("sizes where there are none");
    return {};
  }
  if (entry.smallest < kernels::kLeastSmallest || entry.smallest > kernels::kMostSmallest)
    return Refuse(fmt::format("a smallest size of number {}", entry.smallest));
  if (entry.code_bits < kLeastCodeBits || entry.code_bits > kMostCodeBits)
    return Refuse(fmt::format("codes of {} bits", entry.code_bits));
  if (entry.escapes > (entry.code_bits == kMostCodeBits ? 0 : entry.count))
    return Refuse(fmt::format("{} escapes", entry.escapes));
  return {};
}

/// The index of a piece, from `entry` and the front of `indices`, which are long enough.
Result<PieceIndex> ReadIndex(const PieceEntry& entry, std::int64_t length,
                             std::span<const std::byte> indices) {
  const PieceIndex index{length, entry.count, static_cast<IndexCoding>(entry.coding),
                         entry.rice_bits, indices.first(entry.index_bytes)};
  if (auto right = CheckIndex(index); !right) return Refuse(right.error().message);
  return index;
}

}  // namespace

Result<SparseMessage> SparseMessage::Read(std::span<const std::byte> bytes, std::uint32_t bucket,
                                          ValueFormat format, PieceLengths pieces) {
  const auto header = ReadHeader(bytes);
  if (!header) return tl::unexpected(header.error());
  if (auto expected = CheckExpected(*header, bucket, format, pieces.size()); !expected)
    return tl::unexpected(expected.error());
  SparseMessage message;
  message.format_ = format;
  message.finite_ = header->flags != kNotFiniteFlag;
  if (!message.finite_) return message;
  const bool zstd = header->flags == kZstdFlag;
  if (auto right = message.ReadPieces(bytes.subspan(sizeof(Header)), pieces, zstd); !right)
    return tl::unexpected(right.error());
  return message;
}

Result<void> SparseMessage::ReadPieces(std::span<const std::byte> payload, PieceLengths pieces,
                                       bool zstd) {
  const auto entries = payload.last(pieces.size() * sizeof(PieceEntry));
  const auto rest = payload.first(payload.size() - entries.size());
  pieces_.reserve(pieces.size());
  std::size_t value_bytes = 0, index_bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto entry = Load<PieceEntry>(entries, i * sizeof(PieceEntry));
    if (auto right = CheckSizes(entry, format_, pieces[i]); !right)
      return FailIn(fmt::format("piece {}", i), std::move(right.error()));
    Piece& piece = pieces_.emplace_back();
    piece.index.length = pieces[i];
    piece.index.count = entry.count;
    piece.smallest = entry.smallest;
    piece.packing = {entry.code_bits, entry.escapes};
    value_bytes += ValueBytesOf(piece, FormatOfPiece(format_, piece.smallest));
    index_bytes += entry.index_bytes;
  }
  const std::size_t plain = value_bytes + index_bytes;
  if (zstd ? rest.size() < index_bytes || rest.size() >= plain : rest.size() != plain)
    return Refuse(fmt::format("{} bytes of values and indices, expected {}{}", rest.size(),
                              zstd ? "less than " : "", plain));
  const auto values = rest.first(rest.size() - index_bytes);
  // This checks counts, and with them the size of the values.
  if (auto right = ReadIndices(rest.last(index_bytes), entries); !right) return right;
  if (!zstd) return ReadValues(values);
  auto restored = Decompressed(values, value_bytes);
  if (!restored) return Refuse("its values are not what zstd made of them");
  restored_ = std::move(*restored);
  return ReadValues(restored_);
}

/// `indices` are as long as `entries` say.
Result<void> SparseMessage::ReadIndices(std::span<const std::byte> indices,
                                        std::span<const std::byte> entries) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto entry = Load<PieceEntry>(entries, i * sizeof(PieceEntry));
    auto index = ReadIndex(entry, pieces_[i].index.length, indices);
    if (!index) return FailIn(fmt::format("piece {}", i), std::move(index.error()));
    pieces_[i].index = *index;
    indices = indices.subspan(index->bytes.size());
  }
  return {};
}

std::size_t SparseMessage::ValueBytesOf(const Piece& piece, ValueFormat format) {
  return format == ValueFormat::kFloat8 ? PackedCodeBytes(piece.index.count, piece.packing)
                                        : ValueBytes(piece.index.count, format);
}

/// Reads the values of pieces whose counts were found right.
Result<void> SparseMessage::ReadValues(std::span<const std::byte> values) {
  std::int64_t codes = 0;
  for (const Piece& piece : pieces_) {
    if (FormatOfPiece(format_, piece.smallest) == ValueFormat::kFloat8)
      codes += RoomForCodes(piece.index.count);
  }
  codes_.resize(static_cast<std::size_t>(codes));
  std::byte* to = codes_.data();
  for (Piece& piece : pieces_) {
    const ValueFormat format = FormatOfPiece(format_, piece.smallest);
    const auto own = values.first(ValueBytesOf(piece, format));
    values = values.subspan(own.size());
    if (format != ValueFormat::kFloat8) {
      if (!AllFinite(own, format, piece.index.count)) return Refuse("a value is not finite");
      piece.values = own.data();
      continue;
    }
    if (!UnpackCodes(own, piece.index.count, piece.packing, to))
      return Refuse("its values are not packed as it says");
    piece.values = to;
    to += RoomForCodes(piece.index.count);
  }
  return {};
}

std::int64_t SparseMessage::count() const {
  std::int64_t count = 0;
  for (const Piece& piece : pieces_) count += piece.index.count;
  return count;
}

kernels::cpu::ExpandArguments SparseMessage::Expansion(const Piece& piece, float* to) const {
  return {.count = piece.index.length,
          .bitmap = piece.index.bytes.data(),
          .value_count = piece.index.count,
          .values = piece.values,
          .format = FormatOfPiece(format_, piece.smallest),
          .smallest = piece.smallest,
          .to = to};
}

void SparseMessage::AddTo(std::span<float> sum, std::span<std::uint64_t> bitmaps) const {
  float* to = sum.data();
  std::uint64_t* marks = bitmaps.data();
  for (const Piece& piece : pieces_) {
    assert(piece.index.length <= sum.data() + sum.size() - to);
    if (FormatOfPiece(format_, piece.smallest) == ValueFormat::kInt4) {
      kernels::cpu::AddInt4(piece.index.length, piece.values, to);
      MarkAll(piece.index.length, marks);
    } else if (piece.index.coding == IndexCoding::kBitmap) {
      AddExpanded(Expansion(piece, to));
      for (std::size_t i = 0; i < BitmapWords(piece.index.length); ++i)
        marks[i] |= LoadWord(piece.index.bytes, 8 * i);
    } else {
      WithFormat(FormatOfPiece(format_, piece.smallest), [&](auto format) {
        VisitPiece<format.value>(
            piece.index, piece.values, Value<format.value>(piece.smallest),
            [to](std::size_t i, float value) { to[i] += value; },
            [marks](std::size_t i, std::uint64_t bits) { marks[i] |= bits; });
      });
    }
    to += piece.index.length;
    marks += BitmapWords(piece.index.length);
  }
  assert(!finite_ || (to == sum.data() + sum.size() && marks == bitmaps.data() + bitmaps.size()));
}

void SparseMessage::WriteTo(std::span<float> out) const {
  if (!finite_) std::ranges::fill(out, 0.0F);
  float* to = out.data();
  for (const Piece& piece : pieces_) {
    assert(piece.index.length <= out.data() + out.size() - to);
    if (FormatOfPiece(format_, piece.smallest) == ValueFormat::kInt4) {
      kernels::cpu::UnpackInt4(piece.index.length, piece.values, to);
    } else if (piece.index.coding == IndexCoding::kBitmap) {
      Expand(Expansion(piece, to));
    } else {
      std::fill_n(to, piece.index.length, 0.0F);
      WithFormat(FormatOfPiece(format_, piece.smallest), [&](auto format) {
        VisitPiece<format.value>(
            piece.index, piece.values, Value<format.value>(piece.smallest),
            [to](std::size_t i, float value) { to[i] = value; }, [](std::size_t, std::uint64_t) {});
      });
    }
    to += piece.index.length;
  }
}

}  // namespace adaptive_train
