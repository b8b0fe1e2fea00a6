// Copies of adaptive-traind's database, made while it is in use.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "db/service/log.h"

namespace adaptive_train {

/// One thread copies the database once a day, as it is at that moment (VACUUM INTO,
/// sqlite.org/lang_vacuum.html), and removes the oldest copies. A copy is complete and on disk
/// before it has its name, profiles-20261129T030000Z.db. Nobody waits for it.
class Backups {
 public:
  struct Settings {
    std::filesystem::path folder;
    int keep = 7;  // at least 1
    std::chrono::seconds every = std::chrono::hours(24);
  };

  /// The first copy is made when the newest in the folder is old enough, or at once.
  Backups(std::filesystem::path database, Settings settings, Log log);
  /// Gives up a copy that is being made.
  ~Backups();
  Backups(const Backups&) = delete;
  Backups& operator=(const Backups&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  void Serve();
  void Copy();
  void CopyTo(const std::filesystem::path& part);
  void RemoveOld(const std::filesystem::path& newest) const;

  const std::filesystem::path database_;
  const Settings settings_;
  const Log log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace adaptive_train
