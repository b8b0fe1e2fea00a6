// Turns an exception from SQLite into one line for people: the file, and what to do.
#include "db/store_error.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "db/database.h"

namespace adaptive_train {
namespace {

int LastErrnoOf(sqlite3* handle, int which_file) {
  sqlite3_file* file = nullptr;
  int system_errno = 0;
  if (sqlite3_file_control(handle, "main", which_file, &file) != SQLITE_OK || file == nullptr ||
      file->pMethods == nullptr ||
      file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &system_errno) != SQLITE_OK) {
    return 0;
  }
  return system_errno;
}

/// The operating system's errno, or 0. SQLite loses it if a commit fails, but the open files keep
/// it.
int SystemErrno(int code, Database* database) {
  if (database == nullptr || (code != SQLITE_IOERR && code != SQLITE_CANTOPEN)) return 0;
  sqlite3* handle = database->handle();
  int system_errno = sqlite3_system_errno(handle);
  if (system_errno == 0) system_errno = LastErrnoOf(handle, SQLITE_FCNTL_JOURNAL_POINTER);
  if (system_errno == 0) system_errno = LastErrnoOf(handle, SQLITE_FCNTL_FILE_POINTER);
  return system_errno;
}

bool IsDiskFull(int code, int extended_code, int system_errno) {
  // SQLite says FULL only for ENOSPC. It reports a quota, a file size limit, or no room for the
  // -shm file as I/O errors.
  return code == SQLITE_FULL || extended_code == SQLITE_IOERR_SHMSIZE ||
         (code == SQLITE_IOERR &&
          (system_errno == ENOSPC || system_errno == EDQUOT || system_errno == EFBIG));
}

std::string Explain(const std::filesystem::path& path, const std::string& doing,
                    std::chrono::milliseconds busy_timeout, const DatabaseError& exception,
                    Database* database) {
  const int code = exception.code();
  const int system_errno = SystemErrno(code, database);
  const std::string cause =
      system_errno == 0 ? "" : fmt::format(" ({})", std::strerror(system_errno));
  if (IsDiskFull(code, exception.extended_code(), system_errno)) {
    return fmt::format(
        "the disk is full{} while {}; nothing of it was kept: make room in {}, or give --store "
        "another path",
        cause, doing, path.parent_path().string());
  }
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return fmt::format(
          "another process has locked the store for longer than {:.3g} s while {}: find it with "
          "`fuser {}`, wait for it or end it",
          static_cast<double>(busy_timeout.count()) / 1000, doing, path.string());
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return fmt::format(
          "not writable while {}: the file, its -wal and -shm files and its folder must be "
          "writable to you",
          doing);
    case SQLITE_CANTOPEN:
      return fmt::format(
          "cannot be opened{} while {}: the file and its folder must be readable and writable to "
          "you",
          cause, doing);
    case SQLITE_CONSTRAINT:
      if (exception.extended_code() == SQLITE_CONSTRAINT_FOREIGNKEY) {
        return fmt::format("{} failed: that job is not in the store", doing);
      }
      [[fallthrough]];
    default:
      return fmt::format("{} failed{}: {}", doing, cause, exception.what());
  }
}

/// SQLite's texts may hold line breaks; an error is one line.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

Error CorruptStore(const std::filesystem::path& path, const std::string& what) {
  return Error{
      OneLine(fmt::format(
          "profile store {0}: the file is corrupt ({1}) and is left as it is: move it away with "
          "its -wal and -shm files, and a new store will be made",
          path.string(), what)),
      ExitCode::kStore};
}

Error StoreError(const std::filesystem::path& path, const std::string& doing,
                 std::chrono::milliseconds busy_timeout, const DatabaseError& exception,
                 Database* database) {
  const int code = exception.code();
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return CorruptStore(path, exception.what());
  const std::string text = Explain(path, doing, busy_timeout, exception, database);
  return Error{OneLine(fmt::format("profile store {}: {}", path.string(), text)), ExitCode::kStore};
}

}  // namespace adaptive_train
