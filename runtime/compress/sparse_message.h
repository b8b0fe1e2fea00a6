// The byte format of the selected elements of a chunk of gradients, from one rank to another.
//
// A chunk is a sequence of pieces: runs of elements of one parameter each. All ranks know the
// pieces' lengths from their layout. A message says which elements of each are sent, and their
// values:
//
//   header   magic, format version, value format, flags, bucket, pieces, payload bytes, checksum:
//            XXH3 of all that follows, seeded with XXH3 of the header before the checksum
//   values   piece after piece: float32, bfloat16, 4 bits (kernels/int4.h), or codes. A code has
//            the sign and the size relative to the piece's smallest (kernels/sparsify.h), in as
//            many bits as the piece needs (size_codes.h). With a flag all of them are what zstd
//            made of them (lossless.h)
//   indices  piece after piece: nothing if all or no elements are sent, a bitmap, or Rice codes of
//            the gaps (see index_coding.h)
//   pieces   per piece: elements sent, bytes of the index, index coding, its parameter, smallest,
//            how its values are packed
//
// The values come first, as they are what is long: without zstd they are written to where they are
// sent from.
// All numbers are little-endian. A message about a chunk with a value that is not finite is the
// header alone, with 0 pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/cpu/sparse.h"
#include "kernels/memory_pool.h"
#include "kernels/sparsify.h"
#include "runtime/compress/index_coding.h"
#include "runtime/compress/size_codes.h"

namespace adaptive_train {

using kernels::ValueFormat;

/// The value format of a piece in a message of `format`. For kFloat8, `smallest` is the number of
/// the smallest of the piece's 128 sizes (kernels/sparsify.h), for kInt4 kPackedWhole; 0 is a piece
/// of bfloat16 values in both.
constexpr ValueFormat FormatOfPiece(ValueFormat format, int smallest) {
  const bool packed = format == ValueFormat::kFloat8 || format == ValueFormat::kInt4;
  return packed && smallest == 0 ? ValueFormat::kBFloat16 : format;
}

/// `smallest` of a piece in 4 bits, of which all elements are sent.
inline constexpr int kPackedWhole = 1;

/// The number of elements in each of a chunk's pieces, in order: from 0 to kMaxPieceLength.
using PieceLengths = std::span<const std::int64_t>;

/// The largest possible message of this chunk, over all selections.
std::size_t MaxMessageBytes(PieceLengths pieces, ValueFormat format);

/// A message as it is sent.
using MessageBytes = kernels::PooledVector<std::byte>;

/// Bytes of the header; its last 8 are the checksum.
inline constexpr std::size_t kMessageHeaderBytes = 32;

/// The expected checksum of a message, which has at least a header.
std::uint64_t MessageChecksum(std::span<const std::byte> message);

/// Writes a message piece by piece. Not thread-safe; may be reused after Finish.
class SparseMessageWriter {
 public:
  SparseMessageWriter(std::uint32_t bucket, ValueFormat format) : bucket_(bucket), format_(format) {
    Clear();
  }

  /// Makes room for so many pieces and values, so that Add need not move what is written already.
  void Reserve(std::size_t pieces, std::int64_t values);
  /// Adds the next piece: `count` of its `length` elements, those whose bits are set in `bitmap`.
  /// The bitmap has ceil(length / 64) words with zeros past the end; it is not read if all or no
  /// elements are sent. `values` are as kernels::Select stores them, in ascending order of their
  /// places, or for kInt4 as PackInt4 does. A value that is not finite makes a message that is
  /// rejected: call NotFinite instead.
  /// `smallest` is as for FormatOfPiece.
  void Add(std::int64_t length, const std::uint64_t* bitmap, std::int64_t count, const void* values,
           int smallest = 0);
  /// The chunk has a value that is not finite: the message will say so and have no elements.
  void NotFinite() { finite_ = false; }
  /// With kZstd the values go through zstd where that makes them shorter.
  enum class Lossless { kNone, kZstd };
  MessageBytes Finish(Lossless lossless = Lossless::kNone);

 private:
  struct Piece {
    std::int64_t count = 0;
    IndexCode index;
    int smallest = 0;
    CodePacking packing = {};  // of kFloat8
  };
  void Clear();
  void Append(const void* bytes, std::size_t size);
  bool CompressValues();

  std::uint32_t bucket_;
  ValueFormat format_;
  bool finite_ = true;
  IndexEncoder encoder_;
  CodePacker packer_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> indices_;
  MessageBytes message_;  // as far as it is written, with room for the header
};

/// A message that has passed all checks: lengths, checksum, coding, every place within its piece,
/// every value finite. Refers to the caller's bytes, which must not change. Its const functions may
/// be called by several threads.
class SparseMessage {
 public:
  SparseMessage(SparseMessage&&) = default;
  SparseMessage& operator=(SparseMessage&&) = default;

  /// Checks the message completely against the expected chunk. Errors say briefly what is wrong
  /// ("the checksum is wrong"). Allocates one small entry per expected piece, for kFloat8 a byte
  /// per sent element, and the values again if they went through zstd.
  static Result<SparseMessage> Read(std::span<const std::byte> bytes, std::uint32_t bucket,
                                    ValueFormat format, PieceLengths pieces);

  /// False: a value of the chunk was not finite, and the message has no elements.
  bool finite() const { return finite_; }
  std::int64_t count() const;  // elements sent
  /// As passed to SparseMessageWriter::Add.
  int SmallestOf(std::size_t piece) const { return pieces_[piece].smallest; }

  /// sum[i] += value for every sent element, and marks it in `bitmaps`: the chunk's pieces one
  /// after the other, each in ceil(length / 64) words. `sum` has the chunk's length.
  void AddTo(std::span<float> sum, std::span<std::uint64_t> bitmaps) const;
  /// out[i] = value for every sent element, 0 elsewhere.
  void WriteTo(std::span<float> out) const;

 private:
  struct Piece {
    PieceIndex index;
    int smallest = 0;
    CodePacking packing = {};           // of kFloat8
    const std::byte* values = nullptr;  // of kFloat8 in codes_, of zstd in restored_
  };
  SparseMessage() = default;
  kernels::cpu::ExpandArguments Expansion(const Piece& piece, float* to) const;
  static std::size_t ValueBytesOf(const Piece& piece, ValueFormat format);
  Result<void> ReadValues(std::span<const std::byte> values);
  Result<void> ReadIndices(std::span<const std::byte> indices, std::span<const std::byte> entries);
  Result<void> ReadPieces(std::span<const std::byte> payload, PieceLengths pieces, bool zstd);

  ValueFormat format_ = ValueFormat::kBFloat16;
  bool finite_ = true;
  std::vector<Piece> pieces_;
  kernels::PooledVector<std::byte> codes_;     // of kFloat8, a byte each
  kernels::PooledVector<std::byte> restored_;  // values that went through zstd
};

}  // namespace adaptive_train
