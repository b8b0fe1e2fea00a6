// Megatron's .idx: where sequences and documents lie in the .bin beside it.
//
// The format is that of NVIDIA's Megatron-LM (megatron/core/datasets/indexed_dataset.py,
// IndexedDataset, formerly MMapIndexedDataset). All numbers are little-endian:
//   byte 0   9 bytes  "MMIDIDX\0\0"
//   byte 9   uint64   version, 1
//   byte 17  uint8    type of the tokens, see token_type.h
//   byte 18  uint64   n, number of sequences
//   byte 26  uint64   m, number of document marks
//   byte 34  int32[n] tokens of each sequence
//            int64[n] offset in the .bin at which each begins, without gaps
//            int64[m] document d holds the sequences from mark d up to mark d + 1
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/regular_file.h"
#include "runtime/data/token_type.h"

namespace adaptive_train {

inline constexpr char kMegatronMagic[] = "MMIDIDX\0";  // nine bytes with the terminating zero
inline constexpr std::int64_t kMegatronHeaderBytes = 34;
/// More than any data set has, and small enough that sums of counts cannot overflow.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;

/// What an index says about its .bin.
struct MegatronIndex {
  TokenType type = TokenType::kUint16;
  std::int64_t tokens = 0;
  /// The first token of each non-empty document, ascending, starting with 0. If the index marks no
  /// documents, every sequence counts as one.
  std::vector<std::int64_t> document_starts;
};

/// Reads and checks a whole index piece by piece; 8 bytes per document stay in memory. Blocking.
/// Errors name the file and the byte. They are a bad magic, version or type; counts that do not fit
/// the file's size; sequences with gaps or overlaps; or document marks out of order.
Result<MegatronIndex> ReadMegatronIndex(const RegularFile& index);

/// The bytes of an index; `marks` begins with 0 and ends with sizes.size().
std::string FormatMegatronIndex(TokenType type, const std::vector<std::int32_t>& sizes,
                                const std::vector<std::int64_t>& marks);

}  // namespace adaptive_train
