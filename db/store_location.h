// Where a profile store lies: what --store means.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// A store in a file of its own. (A shared one behind adaptive-traind is refused by
/// ParseStoreLocation.)
struct StoreLocation {
  std::filesystem::path path;  // absolute
};

/// Reads "file:PATH" ("~/" and relative paths allowed); the empty text means
/// $XDG_STATE_HOME/adaptive-train/profiles.db, or ~/.local/state/adaptive-train/profiles.db.
/// Touches no file. Anything else is an error with ExitCode::kUsage, "unix:PATH" with
/// ExitCode::kStore.
Result<StoreLocation> ParseStoreLocation(std::string_view text);

}  // namespace adaptive_train
