// Turns an exception from SQLite into one line for people: the file, and what to do.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "core/result.h"

namespace adaptive_train {

class Database;
class DatabaseError;

/// The error for a damaged file, also if quick_check found the damage.
Error CorruptStore(const std::filesystem::path& path, const std::string& what);

/// Translates `exception`, thrown while `doing` ("storing a plan") with the file at `path`.
/// `database` is the affected one, or null if opening failed.
Error StoreError(const std::filesystem::path& path, const std::string& doing,
                 std::chrono::milliseconds busy_timeout, const DatabaseError& exception,
                 Database* database);

}  // namespace adaptive_train
