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
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "db/database.h"
#include "db/open_database.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopyBegins = "profiles-";
constexpr const char* kCopyEnds = ".db";
constexpr const char* kUnfinished =
    "profiles.part";  // one at a time: the last one's is left by a crash
/// After a copy that failed.
constexpr std::chrono::minutes kAfterFailure{10};

/// The copies, the oldest first: their names tell when they were made.
std::vector<fs::path> CopiesIn(const fs::path& folder) {
  std::vector<fs::path> copies;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kCopyBegins) && name.ends_with(kCopyEnds) && entry.is_regular_file())
      copies.push_back(entry.path());
  }
  std::ranges::sort(copies);
  return copies;
}

/// How long ago the newest was made, by the file's time; none: there is none.
std::optional<std::chrono::seconds> AgeOfNewest(const fs::path& folder) {
  const auto copies = CopiesIn(folder);
  if (copies.empty()) return std::nullopt;
  const auto age = fs::file_time_type::clock::now() - fs::last_write_time(copies.back());
  return std::chrono::duration_cast<std::chrono::seconds>(age);
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

}  // namespace

Backups::Backups(fs::path database, Settings settings, Log log)
    : database_(std::move(database)), settings_(std::move(settings)), log_(std::move(log)) {
  thread_ = std::thread([this] { Serve(); });
}

Backups::~Backups() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    if (copying_ != nullptr) sqlite3_interrupt(copying_->handle());
  }
  changed_.notify_one();
  thread_.join();
}

void Backups::Serve() {
  auto due = Clock::now();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_until(lock, due, [this] { return ending_; })) return;
    }
    try {
      fs::create_directories(settings_.folder);
      const auto age = AgeOfNewest(settings_.folder);
      // A clock that was set back must not end backups.
      const bool old = !age || *age >= settings_.every || *age < std::chrono::seconds(0);
      if (old) Copy();
      due = Clock::now() + (old ? settings_.every : settings_.every - *age);
    } catch (const std::exception& error) {
      due = Clock::now() + kAfterFailure;
      std::lock_guard lock(mutex_);
      if (!ending_)
        log_({LOG_ERR,
              fmt::format("no copy of the database is made in {}: {} (tried again in {} minutes)",
                          settings_.folder.string(), error.what(), kAfterFailure.count())});
    }
  }
}

void Backups::Copy() {
  const fs::path part = settings_.folder / kUnfinished;
  fs::remove(part);
  CopyTo(part);
  fs::permissions(part, fs::perms::owner_read | fs::perms::owner_write);
  Synchronize(part);
  const fs::path named = settings_.folder / fmt::format("{}{:%Y%m%dT%H%M%SZ}{}", kCopyBegins,
                                                        fmt::gmtime(std::time(nullptr)), kCopyEnds);
  fs::rename(part, named);
  Synchronize(settings_.folder);
  log_({LOG_INFO, fmt::format("copied the database to {}, {} MiB", named.string(),
                              fs::file_size(named) >> 20)});
  RemoveOld();
}

void Backups::CopyTo(const fs::path& part) {
  // It may write: SQLite takes a copy for that.
  const auto database =
      std::make_unique<Database>(database_, Database::Mode::kReadWrite, kBusyTimeout);
  {
    std::lock_guard lock(mutex_);
    if (ending_) throw std::runtime_error("the service ends");
    copying_ = database.get();
  }
  const auto copied = [&] {
    std::lock_guard lock(mutex_);
    copying_ = nullptr;
  };
  try {
    Statement(*database, "VACUUM INTO ?1").Bind(part.string()).Run();
  } catch (...) {
    copied();
    std::error_code ignored;
    fs::remove(part, ignored);
    throw;
  }
  copied();
}

void Backups::RemoveOld() const {
  auto copies = CopiesIn(settings_.folder);
  const auto keep = static_cast<std::size_t>(settings_.keep);
  if (copies.size() <= keep) return;
  copies.resize(copies.size() - keep);
  for (const fs::path& old : copies) fs::remove(old);
}

}  // namespace adaptive_train
