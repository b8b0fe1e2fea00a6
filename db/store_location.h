// The location of a profile store: the meaning of --store.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

struct StoreLocation {
  enum class Kind { kFile, kService };

  std::filesystem::path path;  // absolute: the file, or the socket of adaptive-traind
  Kind kind = Kind::kFile;
};

/// Parses "file:PATH" and "unix:PATH" ("~/" and relative paths allowed). The empty text means
/// the file $XDG_STATE_HOME/adaptive-train/profiles.db or
/// ~/.local/state/adaptive-train/profiles.db. Touches no file. "tcp:HOST:PORT" is an error with
/// ExitCode::kStore, anything else one with ExitCode::kUsage.
Result<StoreLocation> ParseStoreLocation(std::string_view text);

}  // namespace adaptive_train
