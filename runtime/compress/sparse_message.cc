// Writes sparse messages.
#include "runtime/compress/sparse_message.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "runtime/compress/sparse_message_layout.h"

namespace adaptive_train {

using sparse_message::Header;
using sparse_message::kNotFiniteFlag;
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
    piece.packing = packer_.AppendTo(values_, {stored, static_cast<std::size_t>(count)}, smallest);
    return;
  }
  const auto* bytes = static_cast<const std::byte*>(values);
  values_.insert(values_.end(), bytes, bytes + ValueBytes(count, format));
}

std::vector<std::byte> SparseMessageWriter::Finish() {
  if (!finite_) Clear();
  Header header{
      .value_format = static_cast<std::uint8_t>(format_),
      .flags = finite_ ? std::uint8_t{0} : kNotFiniteFlag,
      .bucket = bucket_,
      .pieces = static_cast<std::uint32_t>(pieces_.size()),
      .payload_bytes = pieces_.size() * sizeof(PieceEntry) + indices_.size() + values_.size()};
  std::vector<std::byte> message(sizeof header + header.payload_bytes);
  std::byte* end = message.data();
  const auto append = [&end](const void* data, std::size_t size) {
    end = std::copy_n(static_cast<const std::byte*>(data), size, end);
  };
  append(&header, sizeof header);
  for (const Piece& piece : pieces_) {
    const PieceEntry entry{
        .count = static_cast<std::uint32_t>(piece.count),
        .index_bytes = static_cast<std::uint32_t>(piece.index.bytes),
        .escapes = piece.packing.escapes,
        .smallest = static_cast<std::uint16_t>(piece.smallest),
        .coding = static_cast<std::uint8_t>(piece.index.coding),
        .rice_bits = piece.index.rice_bits,
        .code_bits = static_cast<std::uint8_t>(piece.smallest == 0 ? 0 : piece.packing.bits)};
    append(&entry, sizeof entry);
  }
  append(indices_.data(), indices_.size());
  append(values_.data(), values_.size());
  header.checksum = MessageChecksum(message);
  std::memcpy(message.data(), &header, sizeof header);
  Clear();
  finite_ = true;
  return message;
}

void SparseMessageWriter::Clear() {
  pieces_.clear();
  indices_.clear();
  values_.clear();
}

}  // namespace adaptive_train
