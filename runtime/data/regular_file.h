// A file that any thread may read at any offset, and that never relies on its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// An open regular file. Movable; any thread may read.
///
/// It is read by pread, not mapped. If the file shrinks, that gives a one-line error instead of a
/// SIGBUS. A sample is a few hundred bytes from the page cache either way.
class RegularFile {
 public:
  /// Errors, each in one line that begins with the path: missing, unreadable, not a regular file.
  static Result<RegularFile> Open(const std::string& path);

  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();

  const std::string& path() const { return path_; }
  /// Bytes in the file when it was opened.
  std::int64_t size() const { return size_; }

  /// Fills `into` from byte `offset` on; [offset, offset + into.size()) must lie in the file.
  /// Blocking. Errors: the file has become shorter, or cannot be read.
  Result<void> ReadAt(std::int64_t offset, std::span<std::byte> into) const;

 private:
  RegularFile(int descriptor, std::string path);

  int descriptor_ = -1;
  std::int64_t size_ = 0;
  std::string path_;
};

}  // namespace adaptive_train
