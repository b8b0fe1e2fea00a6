// The byte layout of a sparse message; see sparse_message.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/int4.h"
#include "runtime/compress/sparse_message.h"

namespace adaptive_train::sparse_message {

inline constexpr std::uint32_t kMagic = 0x4d535441;  // "ATSM"
inline constexpr std::uint8_t kFormatVersion = 6;
inline constexpr std::uint8_t kNotFiniteFlag = 1;
inline constexpr std::uint8_t kZstdFlag = 2;  // of the values: lossless.h

struct Header {
  std::uint32_t magic = kMagic;
  std::uint8_t format_version = kFormatVersion;
  std::uint8_t value_format = 0;
  std::uint8_t flags = 0;
  std::uint8_t zero = 0;
  std::uint32_t bucket = 0;
  std::uint32_t pieces = 0;
  std::uint64_t payload_bytes = 0;  // of all after the header
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == kMessageHeaderBytes);
static_assert(offsetof(Header, checksum) == kMessageHeaderBytes - sizeof(std::uint64_t));

struct PieceEntry {
  std::uint32_t count = 0;
  std::uint32_t index_bytes = 0;
  std::uint32_t escapes = 0;   // of kFloat8, see size_codes.h
  std::uint16_t smallest = 0;  // of kFloat8 and kInt4, see SparseMessageWriter::Add
  std::uint8_t coding = 0;
  std::uint8_t rice_bits = 0;
  std::uint8_t code_bits = 0;  // of kFloat8
  std::uint8_t zeros[3] = {};
};
static_assert(sizeof(PieceEntry) == 20);

/// Bytes of this many values of a piece that is not kFloat8.
inline std::size_t ValueBytes(std::int64_t count, ValueFormat format) {
  if (format == ValueFormat::kInt4) return kernels::Int4Bytes(count);
  return static_cast<std::size_t>(count * BytesOf(format));
}

}  // namespace adaptive_train::sparse_message
