// One file of tokens in any of the formats that are read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/regular_file.h"
#include "runtime/data/token_type.h"

namespace adaptive_train {

/// What data.format names.
enum class TokenFormat : std::uint8_t { kAuto, kMegatron, kLlmc, kUint16, kBytes };

const char* ToString(TokenFormat format);
/// Errors: a word that is none of "auto", "megatron", "llmc", "uint16", "bytes".
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
  /// where an .idx lies beside the .bin, llmc where the file begins with its magic, and bytes for
  /// the rest except a lone .bin, which it does not guess at. Blocking. Errors begin with the
  /// path of the file they mean.
  static Result<TokenShard> Open(const std::string& path, TokenFormat format);

  TokenFormat format() const { return format_; }
  /// Why it was read as that: "named by data.format", "it has an .idx beside it", ...
  const std::string& reason() const { return reason_; }
  TokenType type() const { return type_; }
  std::int64_t size() const { return tokens_; }
  /// The files behind it, for those who check them: one, or .bin and .idx.
  const std::vector<std::string>& paths() const { return paths_; }
  /// First tokens of documents, ascending; empty where the format keeps no documents.
  const std::vector<std::int64_t>& document_starts() const { return document_starts_; }

  /// Reads tokens [first, first + tokens.size()), which must lie in the shard; each must lie in [0,
  /// vocab). Blocking. Errors: the file has become shorter, cannot be read, or holds something
  /// else.
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
  std::int64_t begin_ = 0;  // byte of token 0
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> document_starts_;
};

}  // namespace adaptive_train
