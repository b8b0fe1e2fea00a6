// The keys of a configuration: how each is read and printed. For config.cc and settings.cc alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <toml++/toml.h>

#include "core/config.h"

namespace adaptive_train {

/// One key, and how to read it into a Config and print it from one.
struct ConfigKey {
  std::string path;                                      // "train.steps"
  std::string allowed;                                   // "an integer, 1 or more"
  std::function<bool(Config&, const toml::node&)> read;  // false: not allowed
  std::function<std::string(const Config&)> print;
};

/// Every key, in the order in which it is printed.
const std::vector<ConfigKey>& ConfigKeys();

/// The key with this path; null if there is none.
const ConfigKey* FindConfigKey(const std::string& path);
/// The path nearest to `path` of a key that is `wanted`; one is.
std::string NearestConfigKey(
    const std::string& path, const std::function<bool(const std::string&)>& wanted =
                                 [](const std::string&) { return true; });

}  // namespace adaptive_train
