// One file of tokens in any of the supported formats.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/regular_file.h"
#include "runtime/data/token_type.h"

namespace adaptive_train {

/// The values of data.format.
enum class TokenFormat : std::uint8_t { kAuto, kMegatron, kLlmc, kUint16, kBytes };

const char* ToString(TokenFormat format);
/// Errors: any word but "auto", "megatron", "llmc", "uint16" and "bytes".
Result<TokenFormat> ParseTokenFormat(const std::string& word);

/// An open file of at least one token. Movable; any thread may read.
///
/// - bytes: token i is byte i.
/// - uint16: token i is the little-endian uint16 at byte 2 i.
/// - llmc: 256 int32 (magic 20240520 and version 1: uint16 tokens; 20240801 and 7: uint32; then the
///   number of tokens), then the tokens (llm.c, dev/data/data_common.py).
/// - megatron: see megatron_index.h.
class TokenShard {
 public:
  /// Opens `path`, which for megatron may be PREFIX, PREFIX.bin or PREFIX.idx. kAuto takes megatron
  /// if an .idx lies beside the .bin, and llmc if the file starts with its magic. It takes bytes
  /// for all other files but a lone .bin, which is an error. Blocking. Errors begin with the path
  /// of the file concerned.
  static Result<TokenShard> Open(const std::string& path, TokenFormat format);

  TokenFormat format() const { return format_; }
  /// Why this format was chosen: "named by data.format", "it has an .idx beside it", ...
  const std::string& reason() const { return reason_; }
  TokenType type() const { return type_; }
  std::int64_t size() const { return tokens_; }
  /// The files to check: one, or .bin and .idx.
  const std::vector<std::string>& paths() const { return paths_; }
  /// The first token of each document, ascending; empty if the format has none.
  const std::vector<std::int64_t>& document_starts() const { return document_starts_; }

  /// Reads tokens [first, first + tokens.size()), which must exist in the shard; each must be in
  /// [0, vocab). Blocking. Errors: the file has become shorter, cannot be read, or has other
  /// content.
  Result<void> Read(std::int64_t first, std::span<std::int32_t> tokens, std::int64_t vocab) const;

 private:
  TokenShard(RegularFile file, TokenFormat format, std::string reason);
  static Result<TokenShard> OpenPlain(RegularFile file, TokenFormat format, std::string reason);
  static Result<TokenShard> OpenLlmc(RegularFile file, std::string reason);
  static Result<TokenShard> OpenMegatron(const std::string& path, std::string reason);
  template <class T>
  Result<void> ReadAs(std::int64_t first, std::span<std::int32_t> tokens, std::int64_t vocab) const;

  RegularFile file_;
  TokenFormat format_;
  std::string reason_;
  std::vector<std::string> paths_;
  TokenType type_ = TokenType::kUint8;
  std::int64_t begin_ = 0;  // offset of token 0
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> document_starts_;
};

}  // namespace adaptive_train
