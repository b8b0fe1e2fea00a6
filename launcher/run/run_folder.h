// RUN_DIR: everything a run leaves for people, and what its ranks read.
//
//   job.json  config.resolved.toml  cluster.json  plan.json  plan.txt  metrics.jsonl
//   ledger.jsonl  tensorboard/  logs/rank-N.log  checkpoints/
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "launcher/run/folder_lock.h"

namespace adaptive_train {

/// The job that a run folder was made for; job_id 0 without Slurm.
struct RunOwner {
  std::string cluster;
  std::int64_t job_id = 0;
  std::int64_t restart_count = 0;
  double submit_time = 0;  // seconds since 1970
};

/// One run folder, held by one launcher at a time (a lock that ends with the process). One thread.
class RunFolder {
 public:
  /// Creates the folder and logs/ if missing, and takes the lock. Waits up to `patience` for
  /// another launcher's lock. Fails with kPreflight if the folder cannot be written or another
  /// launcher holds it. Blocks.
  static Result<RunFolder> Open(
      const std::string& path, std::chrono::milliseconds patience = {},
      std::function<void(const std::string&)> on_notice = [](const std::string&) {});

  const std::string& Path() const { return path_; }  // absolute
  /// False if the folder belongs to another job. A requeued job (restart_count above 0) has a new
  /// submit time, so only its number and cluster count.
  static bool MayBelongTo(const std::string& path, const RunOwner& owner);
  Result<void> SetOwner(const RunOwner& owner) const;
  Result<void> Write(const std::string& name, std::string_view text) const;
  /// Removes the folder if this launcher created it and it holds only what every start writes: no
  /// plan, no ledger, no logs.
  void RemoveIfUnused() const;
  /// Appends one line to metrics.jsonl, which is made anew if somebody has removed it. If the disk
  /// is full, a partial line is removed again.
  Result<void> AppendMetrics(const std::string& line);
  /// Drops the lines of steps after `step`, which will be repeated.
  Result<void> CutMetrics(std::int64_t step);

 private:
  RunFolder(std::string path, FolderLock lock, bool made)
      : path_(std::move(path)), lock_(std::move(lock)), made_(made) {}
  std::string path_;
  FolderLock lock_;
  bool made_;  // by this launcher
};

}  // namespace adaptive_train
