// The tokens behind one name of the configuration: a file, or several shards one after the other.
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
  /// Opens `path` as TokenShard::Open does. Where the last part of `path` has a '*' and no file has
  /// that very name, all files that match are its shards, in the order of their names; what lies
  /// beside a matching .bin under the same name (.idx, .model, .json) is not one. `key` is the
  /// configuration's name for the data and opens every message: "data.train: PATH: cannot be
  /// opened: No such file or directory". Blocking; an index is read whole.
  static Result<TokenFile> Open(const std::string& key, const std::string& path,
                                TokenFormat format);

  /// Tokens in all shards when they were opened; at most 2^48.
  std::int64_t size() const { return first_.back(); }
  /// "data.train: PATH"
  const std::string& where() const { return where_; }
  /// What was taken for what and why: "megatron (it has an .idx beside it): 123 uint16 tokens in 4
  /// documents".
  std::string Description() const;
  const std::vector<TokenShard>& shards() const { return shards_; }

  /// Reads tokens [first, first + tokens.size()), which must lie in the file; each must lie in [0,
  /// vocab). Blocking. Errors: a file has become shorter, cannot be read, or holds something else.
  Result<void> Read(std::int64_t first, std::span<std::int32_t> tokens, std::int64_t vocab) const;

  /// First tokens of the documents, ascending, the first 0; empty where the format keeps none.
  const std::vector<std::int64_t>& document_starts() const { return document_starts_; }
  /// The number of the document that `token` < size() belongs to; 0 where none are known.
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
