// A lock on a folder that ends with its process, so that two runs never write to one folder.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// How a lock is taken.
struct FolderLockRequest {
  std::string folder;  // absolute; must exist
  std::string what;    // prefix of every message: "run folder"
  std::string advice;  // end of the refusal: "name another with --run-dir"
  /// How long to wait for a lock that is held. A file server keeps the lock of a dead client until
  /// its lease expires.
  std::chrono::milliseconds patience{0};
  std::function<void(const std::string& line)> on_notice = [](const std::string&) {};
};

/// Holds FOLDER/.lock (flock) until destroyed. One thread.
class FolderLock {
 public:
  /// Fails with kPreflight if the file cannot be opened or another process still holds the lock
  /// after `patience`. If the file system has no locks, reports that by on_notice and continues
  /// without. Blocks.
  static Result<FolderLock> Take(const FolderLockRequest& request);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int file) : file_(file) {}
  int file_;
};

}  // namespace adaptive_train
