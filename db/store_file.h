// Checks a store's file and creates its folders before SQLite opens it.
#pragma once

#include <filesystem>

#include "core/result.h"
#include "db/store_location.h"

namespace adaptive_train {

/// Returns the file's path without symbolic links. Checks that it is, or can become, a writable
/// regular file on a local file system. `create` creates missing folders (0700) and an empty file
/// (0600); without it a missing file is an error. Never opens the file: closing it would drop the
/// locks that this process holds on it.
Result<std::filesystem::path> PrepareStoreFile(const StoreLocation& location, bool create);

}  // namespace adaptive_train
