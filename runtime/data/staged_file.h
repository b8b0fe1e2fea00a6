// A file in the making: under its own name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// Collects bytes in a temporary file beside `path`, which disappears with the object unless it was
/// published. Movable; one thread.
class StagedFile {
 public:
  static Result<StagedFile> Create(const std::string& path);
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;
  ~StagedFile();

  /// Appends; what is small is written later. Blocking. Errors: full disk and its kin.
  Result<void> Append(std::string_view bytes);
  /// Writes what is left and waits until it is on the disk.
  Result<void> Sync();
  /// Gives the synced file its name, over any that had it.
  Result<void> Publish();

 private:
  StagedFile(std::string path, std::string temporary, int descriptor);
  Result<void> Flush();

  std::string path_, temporary_, buffer_;
  int descriptor_;
};

}  // namespace adaptive_train
