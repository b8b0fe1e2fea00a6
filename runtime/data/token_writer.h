// Writes documents of tokens to a .bin and its .idx.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/staged_file.h"
#include "runtime/data/token_type.h"

namespace adaptive_train {

/// Collects tokens as a .bin and the columns of its .idx: 12 bytes per document in memory. One
/// thread.
class TokenWriter {
 public:
  /// `type` is kUint16 or kInt32.
  TokenWriter(StagedFile bin, TokenType type);

  /// Appends tokens to the open document; each must fit the type. Blocking. Errors: full disk.
  Result<void> Append(std::span<const std::int32_t> tokens);
  void EndDocument();

  std::int64_t tokens() const { return tokens_; }
  StagedFile& bin() { return bin_; }
  /// The .idx of all documents that have ended.
  std::string Index() const;

 private:
  Result<void> Write(std::span<const std::int32_t> tokens);
  void EndSequence();

  StagedFile bin_;
  const TokenType type_;
  std::vector<std::uint16_t> narrow_;
  std::int64_t in_sequence_ = 0, tokens_ = 0;
  std::vector<std::int32_t> sizes_;
  std::vector<std::int64_t> marks_ = {0};
};

}  // namespace adaptive_train
