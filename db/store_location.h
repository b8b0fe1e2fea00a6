// The location of a profile store: the meaning of --store.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// A store in its own file. (ParseStoreLocation refuses a shared store behind adaptive-traind.)
struct StoreLocation {
  std::filesystem::path path;  // absolute
};

/// Parses "file:PATH" ("~/" and relative paths allowed). The empty text means
/// $XDG_STATE_HOME/adaptive-train/profiles.db or ~/.local/state/adaptive-train/profiles.db. Touches
/// no file. "unix:PATH" and "tcp:HOST:PORT" are errors with ExitCode::kStore, anything else one
/// with ExitCode::kUsage.
Result<StoreLocation> ParseStoreLocation(std::string_view text);

}  // namespace adaptive_train
