// The location of a profile store: the meaning of --store.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/settings.h"

namespace adaptive_train {

/// Of the text "HOST:PORT".
struct HostAndPort {
  std::string host, port;
};
/// An IPv6 address stands in brackets, as in "[::1]:6822". A port is a number. None for other
/// texts.
std::optional<HostAndPort> ParseHostAndPort(std::string_view text);

struct StoreLocation {
  enum class Kind { kFile, kLocalService, kRemoteService };

  std::filesystem::path path;  // absolute: the file, or the socket of adaptive-traind; else empty
  Kind kind = Kind::kFile;
  // Of kRemoteService.
  std::string address = {};  // "HOST:PORT"
  uid_t service = 0;         // who adaptive-traind must be
  std::string munge_socket = {};
};

/// Whether adaptive-traind keeps the store.
bool IsService(const StoreLocation& location);

/// The store that a command uses.
struct StoreChoice {
  std::string text;      // as ParseStoreLocation takes it; empty: the default place
  std::string named_by;  // for errors: "--store", a variable, a file; empty: nobody
  /// An error of this store may end a command. Others are warnings: a store that no person has
  /// named for this command must not fail it.
  bool required = false;
  // For a service on another host.
  std::optional<uid_t> service = {};
  std::string munge_socket = {};
};

/// Where adaptive-traind listens if nothing else is said. While it starts anew its folder is there.
inline constexpr const char* kServiceSocket = "/run/adaptive-traind/socket";

/// The first that is given of `typed` (--store), $ADAPTIVE_TRAIN_STORE, the setting of the user or
/// the site, the service's socket if the service runs on this host, and the default place.
StoreChoice ChooseStore(const std::string& typed, const Settings& settings,
                        const std::filesystem::path& socket = kServiceSocket);

/// Parses "file:PATH", "unix:PATH" ("~/" and relative paths allowed) and "tcp:HOST:PORT". The empty
/// text means the file $XDG_STATE_HOME/adaptive-train/profiles.db or
/// ~/.local/state/adaptive-train/profiles.db. Touches no file and asks no name server. A service on
/// another host must be known by its uid. Errors begin with what named the store; exit code:
/// kUsage.
Result<StoreLocation> ParseStoreLocation(const StoreChoice& choice);

/// For errors and notes: "profile store /home/ann/profiles.db",
/// "profile store unix:/run/adaptive-traind/socket" or "profile store tcp:ctl:6822".
std::string NameOf(const StoreLocation& location);

}  // namespace adaptive_train
