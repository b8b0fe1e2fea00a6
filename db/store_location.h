// The location of a profile store: the meaning of --store.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/settings.h"

namespace adaptive_train {

struct StoreLocation {
  enum class Kind { kFile, kService };

  std::filesystem::path path;  // absolute: the file, or the socket of adaptive-traind
  Kind kind = Kind::kFile;
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

/// Parses "file:PATH" and "unix:PATH" ("~/" and relative paths allowed). The empty text means
/// the file $XDG_STATE_HOME/adaptive-train/profiles.db or
/// ~/.local/state/adaptive-train/profiles.db. Touches no file. "tcp:HOST:PORT" is an error with
/// ExitCode::kStore, anything else one with ExitCode::kUsage. Errors begin with `named_by`.
Result<StoreLocation> ParseStoreLocation(std::string_view text,
                                         std::string_view named_by = "--store");

/// For errors and notes: "profile store /home/ann/profiles.db", or
/// "profile store unix:/run/adaptive-traind/socket".
std::string NameOf(const StoreLocation& location);

}  // namespace adaptive_train
