#include "db/service/backups.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "db/database.h"
#include "db/open_database.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

/// A crash may leave it; the next copy replaces it.
constexpr const char* kUnfinished = "profiles.part";
/// After a copy that failed: a full disk is left alone for longer and longer.
constexpr std::chrono::minutes kFirstPause{10};
constexpr std::chrono::hours kLongestPause{24};
/// Instructions of SQLite's machine between two looks at whether the service ends.
constexpr int kLookEvery = 10'000;
/// What a copy leaves free, in parts of the database's size.
constexpr std::uintmax_t kReserve = 10;

std::string NameAt(std::time_t time) {
  return fmt::format("profiles-{:%Y%m%dT%H%M%SZ}.db", fmt::gmtime(time));
}

/// The copies, the oldest first: their names tell when they were made. Other files are not ours.
std::vector<fs::path> CopiesIn(const fs::path& folder) {
  const std::regex name("profiles-[0-9]{8}T[0-9]{6}Z\\.db");
  std::vector<fs::path> copies;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && std::regex_match(entry.path().filename().string(), name))
      copies.push_back(entry.path());
  std::ranges::sort(copies);
  return copies;
}

/// How long ago the newest was made, by its file's time. None: there is none, or only such as a
/// clock that was set back since has made.
std::optional<std::chrono::seconds> AgeOfNewest(const fs::path& folder) {
  std::optional<std::chrono::seconds> least;
  for (const fs::path& copy : CopiesIn(folder)) {
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(
        fs::file_time_type::clock::now() - fs::last_write_time(copy));
    if (age.count() >= 0) least = std::min(least.value_or(age), age);
  }
  return least;
}

/// Waits until a file's content, or a folder's entries, are on disk.
void Synchronize(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = file >= 0 && ::fsync(file) == 0;
  const int error = errno;
  if (file >= 0) ::close(file);
  if (!done)
    throw fs::filesystem_error("cannot be synchronized", path, {error, std::generic_category()});
}

/// A new file for the copy, which nobody else may read.
void MakeEmpty(const fs::path& path) {
  fs::remove(path);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0)
    throw fs::filesystem_error("cannot be made", path, {errno, std::generic_category()});
  ::close(file);
}

void CheckSpace(const fs::path& database, const fs::path& folder) {
  const std::uintmax_t size = fs::file_size(database), needed = size + size / kReserve;
  const std::uintmax_t free = fs::space(folder).available;
  if (free < needed)
    throw std::runtime_error(
        fmt::format("{} MiB are free, a copy needs {}", free >> 20, needed >> 20));
}

}  // namespace

Backups::Backups(fs::path database, Settings settings, Log log)
    : database_(std::move(database)), settings_(std::move(settings)), log_(std::move(log)) {
  thread_ = std::thread([this] { Serve(); });
}

Backups::~Backups() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Backups::Serve() {
  auto due = Clock::now();
  std::chrono::seconds pause = kFirstPause;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_until(lock, due, [this] { return ending_.load(); })) return;
    }
    try {
      if (fs::create_directories(settings_.folder))
        fs::permissions(settings_.folder, fs::perms::owner_all);
      const auto age = AgeOfNewest(settings_.folder);
      const bool old = !age || *age >= settings_.every;
      if (old) Copy();
      due = Clock::now() + (old ? settings_.every : settings_.every - *age);
      pause = kFirstPause;
    } catch (const std::exception& error) {
      if (ending_) return;
      log_({LOG_ERR, fmt::format("no copy of the database is made in {}: {} (tried again in {} "
                                 "minutes)",
                                 settings_.folder.string(), error.what(), pause.count() / 60)});
      due = Clock::now() + pause;
      pause = std::min<std::chrono::seconds>(2 * pause, kLongestPause);
    }
  }
}

void Backups::Copy() {
  const fs::path part = settings_.folder / kUnfinished;
  CheckSpace(database_, settings_.folder);
  MakeEmpty(part);
  try {
    CopyTo(part);
  } catch (...) {
    std::error_code ignored;
    fs::remove(part, ignored);
    throw;
  }
  Synchronize(part);
  const fs::path named = settings_.folder / NameAt(std::time(nullptr));
  fs::rename(part, named);
  Synchronize(settings_.folder);
  log_({LOG_INFO, fmt::format("copied the database to {}, {} MiB", named.string(),
                              fs::file_size(named) >> 20)});
  RemoveOld(named);
}

/// SQLite refuses this to connections that only read.
void Backups::CopyTo(const fs::path& part) {
  Database database(database_, Database::Mode::kReadWrite, kBusyTimeout);
  const auto ends = [](void* self) { return static_cast<Backups*>(self)->ending_ ? 1 : 0; };
  sqlite3_progress_handler(database.handle(), kLookEvery, ends, this);
  Statement(database, "VACUUM INTO ?1").Bind(part.string()).Run();
  // What was written meanwhile is in the log, which could not be written back.
  database.Run("PRAGMA wal_checkpoint(PASSIVE)");
}

/// Not the newest, whatever the clock says of the others.
void Backups::RemoveOld(const fs::path& newest) const {
  auto copies = CopiesIn(settings_.folder);
  std::erase(copies, newest);
  const auto keep = static_cast<std::size_t>(settings_.keep) - 1;
  if (copies.size() <= keep) return;
  copies.resize(copies.size() - keep);
  for (const fs::path& old : copies) fs::remove(old);
}

}  // namespace adaptive_train
