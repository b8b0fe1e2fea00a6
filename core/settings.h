// What a site and a user set for all their runs: the store, and where configurations begin.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/result.h"

namespace adaptive_train {

/// Built-in values, changed by the site's file and then by the user's. A value: no threads.
struct Settings {
  std::string store;               // as --store takes it; empty: not set
  std::optional<uid_t> store_uid;  // of adaptive-traind on another host
  std::string munge_socket;        // empty: where munge has it
  Config defaults;                 // what a run's configuration begins with
  /// Where the keys come from that a file has set: {"launch.ports", "FILE: line 12"}.
  std::map<std::string, std::string> sources;
};

/// /etc/adaptive-train/adaptive-train.toml, or what $ADAPTIVE_TRAIN_SITE_CONFIG names.
std::string SiteSettingsPath();
/// adaptive-train/adaptive-train.toml below $XDG_CONFIG_HOME or ~/.config; empty: HOME is not set.
std::string UserSettingsPath();

/// Whether `key` ("launch.ports") may stand in such a file: what is about a cluster, not a model.
bool IsSetting(const std::string& key);

/// Reads the site's file and the user's; a missing one is fine. Errors are one line with file and
/// line, exit code 2: a syntax error, an unknown key with the nearest, one that belongs into a
/// run's configuration, a value that is not allowed. So is a site's file that others than root and
/// the caller own or may write: it counts for everybody. Blocks as reading a file does.
Result<Settings> LoadSettings();

/// The settings of a run with this configuration and these words of its command line. Both become
/// the sources of the keys that they set. Errors as of LoadConfig. Blocks as reading a file does.
Result<Settings> InRun(Settings settings, const std::string& config,
                       const std::vector<ConfigOverride>& overrides);

/// A key, its value as TOML, and where that is from ("built-in").
struct ShownSetting {
  std::string key, value, source;
};

/// `store` and what belongs to it, and every key that IsSetting in the order of a configuration.
std::vector<ShownSetting> ListSettings(const Settings& settings);

}  // namespace adaptive_train
