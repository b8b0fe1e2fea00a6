// The checks and folders that a store's file needs before SQLite may see it.
#pragma once

#include <filesystem>

#include "core/result.h"
#include "db/store_location.h"

namespace adaptive_train {

/// Gives the file's path without symbolic links, after checking that it is, or can become, a
/// writable regular file on a local file system. With `create` makes missing folders (0700) and an
/// empty file (0600); without it a missing file is an error. Never opens the file: closing it again
/// would drop the locks that this process holds on it.
Result<std::filesystem::path> PrepareStoreFile(const StoreLocation& location, bool create);

}  // namespace adaptive_train
