// The tokens behind one name in the configuration: a file, or several shards in sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/data/token_shard.h"

namespace adaptive_train {

/// Open shards as one stream of tokens. Movable; any thread may read.
class TokenFile {
 public:
  /// Opens `path` as TokenShard::Open does. If the last part of `path` has a '*' and no file has
  /// that exact name, its shards are all matching files in the order of their names. Files that
  /// belong to a matching .bin (.idx, .model, .json) are no shards. `key` is the configuration's
  /// name for the data and starts every message: "data.train: PATH: cannot be opened: No such file
  /// or directory". Blocking; an index is read completely.
  static Result<TokenFile> Open(const std::string& key, const std::string& path,
                                TokenFormat format);

  /// Tokens in all shards when they were opened; at most 2^48.
  std::int64_t size() const { return first_.back(); }
  /// "data.train: PATH"
  const std::string& where() const { return where_; }
  /// The detected format and the reason: "megatron (it has an .idx beside it): 123 uint16 tokens in
  /// 4 documents".
  std::string Description() const;
  const std::vector<TokenShard>& shards() const { return shards_; }

  /// Reads tokens [first, first + tokens.size()), which must exist; each must be in [0, vocab).
  /// Blocking. Errors: a file has become shorter, cannot be read, or has other content.
  Result<void> Read(std::int64_t first, std::span<std::int32_t> tokens, std::int64_t vocab) const;

  /// The first token of each document, ascending, starting with 0; empty if the format has none.
  const std::vector<std::int64_t>& document_starts() const { return document_starts_; }
  /// The number of the document that contains `token` < size(); 0 if none are known.
  std::int64_t DocumentOf(std::int64_t token) const;

 private:
  TokenFile() = default;
  Result<void> Add(TokenShard shard);

  std::string key_, where_;
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> first_ = {0};  // first token of each shard, and the end
  std::vector<std::int64_t> document_starts_;
};

}  // namespace adaptive_train
