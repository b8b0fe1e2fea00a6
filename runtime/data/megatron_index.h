// Megatron's .idx: where sequences and documents lie in the .bin beside it.
//
// As NVIDIA's Megatron-LM writes it (megatron/core/datasets/indexed_dataset.py, IndexedDataset,
// once called MMapIndexedDataset). All little-endian:
//   byte 0   9 bytes  "MMIDIDX\0\0"
//   byte 9   uint64   version, 1
//   byte 17  uint8    type of the tokens, see token_type.h
//   byte 18  uint64   n, number of sequences
//   byte 26  uint64   m, number of document marks
//   byte 34  int32[n] tokens of each sequence
//            int64[n] byte of the .bin at which each begins: they follow one another
//            int64[m] document d holds the sequences from mark d up to mark d + 1
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/regular_file.h"
#include "runtime/data/token_type.h"

namespace adaptive_train {

inline constexpr char kMegatronMagic[] = "MMIDIDX\0";  // nine bytes with the one that ends the text
inline constexpr std::int64_t kMegatronHeaderBytes = 34;
/// More than any data set, and what sums of counts can reach without overflow.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;

/// What an index says about its .bin.
struct MegatronIndex {
  TokenType type = TokenType::kUint16;
  std::int64_t tokens = 0;
  /// First token of each document that has any, ascending, the first 0. Where the index marks no
  /// documents, every sequence counts as one.
  std::vector<std::int64_t> document_starts;
};

/// Reads and checks a whole index in pieces; what stays in memory is 8 bytes a document. Blocking.
/// Errors name the file and the byte: bad magic, version or type; counts that do not fit the file's
/// size; sequences with gaps or overlaps; document marks out of order.
Result<MegatronIndex> ReadMegatronIndex(const RegularFile& index);

/// The bytes of an index; `marks` begins with 0 and ends with sizes.size().
std::string FormatMegatronIndex(TokenType type, const std::vector<std::int32_t>& sizes,
                                const std::vector<std::int64_t>& marks);

}  // namespace adaptive_train
