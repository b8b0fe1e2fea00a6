// The location of a profile store: the meaning of --store.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/settings.h"

namespace adaptive_train {

/// A store in its own file. (ParseStoreLocation refuses a shared store behind adaptive-traind.)
struct StoreLocation {
  std::filesystem::path path;  // absolute
};

/// The store that a command uses.
struct StoreChoice {
  std::string text;      // as ParseStoreLocation takes it; empty: the default place
  std::string named_by;  // for errors: "--store", a variable, a file; empty: nobody
  /// An error of this store may end a command. Others are warnings: a store that no person has
  /// named for this command must not fail it.
  bool required = false;
};

/// The first that is given of `typed` (--store), $ADAPTIVE_TRAIN_STORE, the setting of the user or
/// the site, and the default place.
StoreChoice ChooseStore(const std::string& typed, const Settings& settings);

/// Parses "file:PATH" ("~/" and relative paths allowed). The empty text means
/// $XDG_STATE_HOME/adaptive-train/profiles.db or ~/.local/state/adaptive-train/profiles.db. Touches
/// no file. "unix:PATH" is an error with ExitCode::kStore, anything else one with ExitCode::kUsage.
/// Errors begin with `named_by`.
Result<StoreLocation> ParseStoreLocation(std::string_view text,
                                         std::string_view named_by = "--store");

}  // namespace adaptive_train
