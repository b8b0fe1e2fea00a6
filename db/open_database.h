// Opens a store's file for use: checks it, and brings its schema up to date.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "core/result.h"
#include "db/database.h"
#include "db/migration.h"
#include "db/store_location.h"

namespace adaptive_train {

struct OpenedDatabase {
  StoreLocation location;  // without symbolic links
  std::unique_ptr<Database> database;
};

/// Implements FileStore::Open for any list of migrations. The file is not changed before all
/// checks have passed.
Result<OpenedDatabase> OpenDatabase(const StoreLocation& location,
                                    std::chrono::milliseconds busy_timeout, bool create,
                                    const std::vector<Migration>& migrations);

/// How long connections of adaptive-traind wait for other processes that lock its file.
inline constexpr std::chrono::milliseconds kBusyTimeout{5000};

/// Another connection to a file that OpenDatabase has opened, for reading alone, by one thread at a
/// time. Throws DatabaseError.
std::unique_ptr<Database> OpenReader(const std::filesystem::path& path);

/// A database without a file; its location's path is ":memory:".
Result<OpenedDatabase> OpenMemoryDatabase(const std::vector<Migration>& migrations);

}  // namespace adaptive_train
