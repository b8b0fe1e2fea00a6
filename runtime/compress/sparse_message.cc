// Writes sparse messages.
#include "runtime/compress/sparse_message.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "runtime/compress/lossless.h"
#include "runtime/compress/sparse_message_layout.h"

namespace adaptive_train {

using sparse_message::Header;
using sparse_message::kNotFiniteFlag;
using sparse_message::kZstdFlag;
using sparse_message::PieceEntry;
using sparse_message::ValueBytes;

std::size_t MaxMessageBytes(PieceLengths pieces, ValueFormat format) {
  format = FormatOfPiece(format, 0);
  std::size_t bytes = sizeof(Header) + pieces.size() * sizeof(PieceEntry);
  for (const std::int64_t length : pieces) {
    // With all elements there is no index; with all but one, a bitmap at most.
    const std::size_t all = ValueBytes(length, format);
    const std::size_t index = length > 1 ? BytesOfBits(static_cast<std::uint64_t>(length)) : 0;
    const std::size_t value = ValueBytes(1, format);
    bytes += std::max(all, all + index - std::min(all, value));
  }
  return bytes;
}

std::uint64_t MessageChecksum(std::span<const std::byte> message) {
  assert(message.size() >= sizeof(Header));
  const auto payload = message.subspan(sizeof(Header));
  return XXH3_64bits_withSeed(payload.data(), payload.size(),
                              XXH3_64bits(message.data(), offsetof(Header, checksum)));
}

void SparseMessageWriter::Add(std::int64_t length, const std::uint64_t* bitmap, std::int64_t count,
                              const void* values, int smallest) {
  Piece& piece = pieces_.emplace_back(
      Piece{count, encoder_.AppendTo(indices_, length, bitmap, count), smallest});
  const ValueFormat format = FormatOfPiece(format_, smallest);
  if (format == ValueFormat::kFloat8) {
    const auto* stored = static_cast<const kernels::BFloat16*>(values);
    piece.packing = packer_.AppendTo(message_, {stored, static_cast<std::size_t>(count)}, smallest);
    return;
  }
  Append(values, ValueBytes(count, format));
}

void SparseMessageWriter::Reserve(std::size_t pieces, std::int64_t values) {
  // Of kInt4 nearly all are in pieces that are packed whole, in a few bytes more than together.
  const bool packed = format_ == ValueFormat::kInt4;
  message_.reserve(sizeof(Header) + pieces * (sizeof(PieceEntry) + (packed ? 4 : 0)) +
                   ValueBytes(values, packed ? format_ : FormatOfPiece(format_, 0)));
}

void SparseMessageWriter::Append(const void* bytes, std::size_t size) {
  const auto* from = static_cast<const std::byte*>(bytes);
  message_.insert(message_.end(), from, from + size);
}

/// Whether they are shorter now.
bool SparseMessageWriter::CompressValues() {
  const auto values = std::span<const std::byte>(message_).subspan(sizeof(Header));
  MessageBytes shorter(sizeof(Header));
  if (!AppendCompressed(shorter, values)) return false;
  message_ = std::move(shorter);
  return true;
}

MessageBytes SparseMessageWriter::Finish(Lossless lossless) {
  if (!finite_) Clear();
  const bool zstd = lossless == Lossless::kZstd && finite_ && CompressValues();
  message_.reserve(message_.size() + indices_.size() + pieces_.size() * sizeof(PieceEntry));
  Append(indices_.data(), indices_.size());
  for (const Piece& piece : pieces_) {
    const bool packs = FormatOfPiece(format_, piece.smallest) == ValueFormat::kFloat8;
    const PieceEntry entry{.count = static_cast<std::uint32_t>(piece.count),
                           .index_bytes = static_cast<std::uint32_t>(piece.index.bytes),
                           .escapes = piece.packing.escapes,
                           .smallest = static_cast<std::uint16_t>(piece.smallest),
                           .coding = static_cast<std::uint8_t>(piece.index.coding),
                           .rice_bits = piece.index.rice_bits,
                           .code_bits = static_cast<std::uint8_t>(packs ? piece.packing.bits : 0)};
    Append(&entry, sizeof entry);
  }
  Header header{.value_format = static_cast<std::uint8_t>(format_),
                .flags = !finite_ ? kNotFiniteFlag
                         : zstd   ? kZstdFlag
                                  : std::uint8_t{0},
                .bucket = bucket_,
                .pieces = static_cast<std::uint32_t>(pieces_.size()),
                .payload_bytes = message_.size() - sizeof header};
  std::memcpy(message_.data(), &header, sizeof header);
  header.checksum = MessageChecksum(message_);
  std::memcpy(message_.data(), &header, sizeof header);
  MessageBytes message = std::move(message_);
  Clear();
  finite_ = true;
  return message;
}

void SparseMessageWriter::Clear() {
  pieces_.clear();
  indices_.clear();
  message_.clear();  // also after a move
  message_.resize(sizeof(Header));
}

}  // namespace adaptive_train
