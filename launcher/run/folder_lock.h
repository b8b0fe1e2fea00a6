// A lock on a folder that ends with its process: two runs must not write to one folder at once.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// How a lock is taken.
struct FolderLockRequest {
  std::string folder;  // absolute; must exist
  std::string what;    // begins every message: "run folder"
  std::string advice;  // ends the refusal: "name another with --run-dir"
  /// How long a lock that somebody holds is waited for: a file server keeps that of a client that
  /// died until its lease is over.
  std::chrono::milliseconds patience{0};
  std::function<void(const std::string& line)> on_notice = [](const std::string&) {};
};

/// Holds FOLDER/.lock (flock) until destroyed. One thread.
class FolderLock {
 public:
  /// Fails with kPreflight where the file cannot be opened or another process holds the lock at the
  /// end of patience. Where the file system knows no locks, says so by on_notice and goes on
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
