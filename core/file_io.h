// Whole small files: read with a limit, written so that a reader sees the old or the new, never
// half.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// Reads a whole regular file of at most `limit` bytes. Blocking.
Result<std::string> ReadFile(const std::string& path, std::size_t limit);

/// Writes `text` to a temporary file beside `path`, syncs it, renames it over `path` and syncs the
/// folder. On failure (full disk, no permission) the old file is untouched and the temporary file
/// removed.
Result<void> WriteFile(const std::string& path, std::string_view text);

/// Creates a folder and its parents. Fine if it is there already.
Result<void> MakeFolder(const std::string& path);

/// Text made safe for one line of a terminal or log: control characters escaped, at most `limit`
/// bytes.
std::string Printable(std::string_view text, std::size_t limit = 200);

}  // namespace adaptive_train
