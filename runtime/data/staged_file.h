// A file that gets its own name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// Collects bytes in a temporary file beside `path`. The temporary file is removed with the object
/// unless it was published. Movable; one thread.
class StagedFile {
 public:
  static Result<StagedFile> Create(const std::string& path);
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;
  ~StagedFile();

  /// Appends; small amounts are buffered. Blocking. Errors: a full disk and the like.
  Result<void> Append(std::string_view bytes);
  /// Writes what is buffered and waits until it is on disk.
  Result<void> Sync();
  /// Gives the synced file its name, replacing any other.
  Result<void> Publish();

 private:
  StagedFile(std::string path, std::string temporary, int descriptor);
  Result<void> Flush();

  std::string path_, temporary_, buffer_;
  int descriptor_;
};

}  // namespace adaptive_train
