// Opens a store's file for use: checks it, and brings its schema up to date.
#include "db/open_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>
#include <thread>

#include "db/database.h"
#include "db/store_error.h"
#include "db/store_file.h"

namespace adaptive_train {
namespace {

using std::chrono::milliseconds;

// Identifies our files ("ATps"); 0001.sql sets the same number.
constexpr int kApplicationId = 0x41547073;
constexpr const char* kApplicationIdQuery = "PRAGMA application_id";
constexpr const char* kTableCount = "SELECT count(*) FROM sqlite_master";
constexpr const char* kQuickCheck = "PRAGMA quick_check(1)";
constexpr const char* kJournalMode = "PRAGMA journal_mode";
constexpr const char* kUseWal = "PRAGMA journal_mode = WAL";
// Unlike a connection that is opened for reading, it can make the files of WAL.
/// A reader keeps 64 MiB of pages. What was read before takes no system call, until somebody
/// writes.
constexpr const char* kReaderSettings = "PRAGMA query_only = ON; PRAGMA cache_size = -65536;";
constexpr const char* kSettings = "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL;";

/// While set, closing the database leaves the WAL instead of writing it back into the file.
void KeepWalOnClose(Database& database, bool keep) {
  sqlite3_db_config(database.handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep ? 1 : 0, nullptr);
}

/// Whether the file's last user may have ended without closing it: a closed store has no log. It
/// has one, too, while others use it.
bool MayHaveEndedUncleanly(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path.string() + "-wal", error);
  return !error && size > 0;
}

/// The first damage that is found; empty if there is none. Reads the whole file.
std::string FindDamage(Database& database) {
  const std::string verdict = database.Text(kQuickCheck);
  return verdict == "ok" ? "" : verdict;
}

/// Checks that this is our file, with a known schema; with `whole` also that no part of it is
/// damaged. Only reads.
Result<void> CheckContent(Database& database, const std::filesystem::path& path, int newest_version,
                          bool whole) {
  // One transaction for all checks: another process may be creating this file's tables.
  Transaction moment(database, Transaction::Kind::kReads);
  const int version = UserVersion(database);
  const int application_id = database.Number(kApplicationIdQuery);
  const bool has_tables = database.Number(kTableCount) > 0;
  if (application_id != kApplicationId && (application_id != 0 || version != 0 || has_tables)) {
    return Fail(
        fmt::format("profile store {}: this is a database of another program: name another file",
                    path.string()),
        ExitCode::kStore);
  }
  if (version > newest_version) {
    return Fail(
        fmt::format("profile store {}: its schema has version {}, and this adaptive-train knows "
                    "versions up to "
                    "{}: use a newer adaptive-train, or give --store file:PATH another path",
                    path.string(), version, newest_version),
        ExitCode::kStore);
  }
  const std::string damage = version < 0 ? "negative schema version"
                             : whole     ? FindDamage(database)
                                         : "";
  if (!damage.empty()) return tl::unexpected(CorruptStore(path, damage));
  return {};
}

/// Turns on WAL. SQLite does not wait by itself if two processes do this to a new file at once.
void UseWal(Database& database, milliseconds busy_timeout) {
  const auto deadline = std::chrono::steady_clock::now() + busy_timeout;
  while (database.Text(kJournalMode) != "wal") {
    try {
      database.Run(kUseWal);
      return;
    } catch (const DatabaseError& exception) {
      const bool busy = exception.code() == SQLITE_BUSY;
      if (!busy || std::chrono::steady_clock::now() >= deadline) throw;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
}

}  // namespace

Result<OpenedDatabase> OpenDatabase(const StoreLocation& location, milliseconds busy_timeout,
                                    bool create, const std::vector<Migration>& migrations) {
  const Result<std::filesystem::path> path = PrepareStoreFile(location, create);
  if (!path) return tl::unexpected(path.error());
  const bool whole = MayHaveEndedUncleanly(*path);
  const char* doing = "opening it";
  std::unique_ptr<Database> database;
  try {
    database = std::make_unique<Database>(*path, Database::Mode::kReadWrite, busy_timeout);
    KeepWalOnClose(*database, true);
    doing = "checking it";
    const auto fit = CheckContent(*database, *path, migrations.back().user_version, whole);
    if (!fit) return tl::unexpected(fit.error());
    KeepWalOnClose(*database, false);
    doing = "bringing its schema up to date";
    UseWal(*database, busy_timeout);
    database->Run(kSettings);
    Migrate(*database, migrations);
  } catch (const DatabaseError& exception) {
    return tl::unexpected(StoreError(*path, doing, busy_timeout, exception, database.get()));
  }
  return OpenedDatabase{StoreLocation{*path}, std::move(database)};
}

std::unique_ptr<Database> OpenReader(const std::filesystem::path& path) {
  auto database = std::make_unique<Database>(path, Database::Mode::kReadWrite, kBusyTimeout);
  database->Run(kReaderSettings);
  return database;
}

Result<OpenedDatabase> OpenMemoryDatabase(const std::vector<Migration>& migrations) {
  const char* path = ":memory:";
  std::unique_ptr<Database> database;
  try {
    database = std::make_unique<Database>(path);
    database->Run(kSettings);
    Migrate(*database, migrations);
  } catch (const DatabaseError& exception) {
    return tl::unexpected(
        StoreError(path, "making a store in memory", milliseconds(0), exception, database.get()));
  }
  return OpenedDatabase{StoreLocation{path}, std::move(database)};
}

}  // namespace adaptive_train
