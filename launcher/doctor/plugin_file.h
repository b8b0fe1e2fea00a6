// The plugin's file and the lines of plugstack.conf that load it, read without loading it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// The line of plugstack.conf that names our plugin.
struct PluginLine {
  std::string path;  // of the plugin, as written
  bool required = false;
  std::string where;  // "FILE: line N"
};

/// Finds the line in `plugstack` and the files that it includes. None: there is no such line that
/// counts. Fails if the file cannot be read. Relative includes start at the file's folder.
Result<std::optional<PluginLine>> FindPluginLine(const std::string& plugstack);

/// Slurm's release that a plugin was built for, from its symbol plugin_version: 0x160508 is 22.05.8.
/// Reads untrusted bytes; fails for what is no plugin of this machine's kind.
Result<std::uint32_t> PluginVersionOf(const std::string& path);

/// 0x160508 for "slurm-wlm 22.05.8"; none where the text has no release.
std::optional<std::uint32_t> SlurmVersionOf(const std::string& text);

/// "22.05" for 0x160508: a plugin works with all of a release.
std::string ReleaseOf(std::uint32_t version);

}  // namespace adaptive_train
