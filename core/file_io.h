// Reads and writes small files as a whole. Reads have a size limit; a reader sees the old or the
// new content, never a part.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// Reads a whole regular file of at most `limit` bytes. Blocking.
Result<std::string> ReadFile(const std::string& path, std::size_t limit);

/// Writes `text` to a temporary file beside `path`, syncs it, renames it over `path` and syncs the
/// folder. On failure (full disk, no permission) the old file is unchanged and the temporary file
/// is removed.
Result<void> WriteFile(const std::string& path, std::string_view text);

/// Creates a folder and its parents; existing ones are fine.
Result<void> MakeFolder(const std::string& path);

/// Makes text safe for one line of a terminal or log: escapes control characters and cuts it at
/// `limit` bytes.
std::string Printable(std::string_view text, std::size_t limit = 200);

}  // namespace adaptive_train
