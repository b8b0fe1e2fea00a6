// A file of tokens, read piece by piece.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// An open file of byte-level tokens: token i is byte i. Movable; any thread may read.
///
/// Read by pread rather than mapped: a file that shrinks under us is then an error in one line
/// instead of a SIGBUS, and a sample is a few hundred bytes from the page cache either way.
class TokenFile {
 public:
  /// Opens `path`. `key` is the configuration's name for the file and opens every message:
  /// "data.train: PATH: no such file". Errors: missing, unreadable, not a regular file, empty.
  static Result<TokenFile> Open(const std::string& key, const std::string& path);

  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  ~TokenFile();

  /// Tokens in the file when it was opened.
  std::int64_t size() const { return size_; }
  /// "data.train: PATH"
  const std::string& where() const { return where_; }

  /// Reads tokens [first, first + tokens.size()), which must lie in the file. Blocking. Errors: the
  /// file has become shorter, or cannot be read.
  Result<void> Read(std::int64_t first, std::span<std::int32_t> tokens) const;

 private:
  TokenFile(int descriptor, std::int64_t size, std::string where);

  int descriptor_ = -1;
  std::int64_t size_ = 0;
  std::string where_;
};

}  // namespace adaptive_train
