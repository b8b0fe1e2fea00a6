// What an administrator writes behind the plugin's name in plugstack.conf.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace adaptive_train::plugin {

struct Arguments {
  std::string probe;                   // absolute path of adaptive-train-probe
  std::chrono::milliseconds deadline;  // for the probe, from its start to its last word
};

struct ArgumentsResult {
  Arguments arguments;                // defaults in the place of what could not be used
  std::vector<std::string> problems;  // one line for each argument that could not be used
};

/// Reads `probe=PATH` and `deadline=SECONDS` (0.1 to 60); a bad one is reported and its default
/// holds.
ArgumentsResult ParseArguments(std::span<const char* const> words);

}  // namespace adaptive_train::plugin
