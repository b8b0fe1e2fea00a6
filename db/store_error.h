// What an exception from SQLite means to a person: one line that names the file and what to do.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "core/result.h"

namespace SQLite {
class Database;
class Exception;
}  // namespace SQLite

namespace adaptive_train {

/// The line for a damaged file, also where quick_check found it.
Error CorruptStore(const std::filesystem::path& path, const std::string& what);

/// Translates `exception`, thrown while `doing` ("storing a plan") with the file at `path`;
/// `database` is the one it happened to, null where opening it failed.
Error StoreError(const std::filesystem::path& path, const std::string& doing,
                 std::chrono::milliseconds busy_timeout, const SQLite::Exception& exception,
                 SQLite::Database* database);

}  // namespace adaptive_train
