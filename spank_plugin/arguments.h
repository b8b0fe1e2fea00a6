// The plugin's arguments in plugstack.conf.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace adaptive_train::plugin {

struct Arguments {
  std::string probe;                   // absolute path of adaptive-train-probe
  std::chrono::milliseconds deadline;  // for the probe, from its start to its last output
};

struct ArgumentsResult {
  Arguments arguments;                // defaults for arguments that could not be used
  std::vector<std::string> problems;  // one line for each argument that could not be used
};

/// Parses `probe=PATH` and `deadline=SECONDS` (0.1 to 60). An invalid one is reported and keeps its
/// default.
ArgumentsResult ParseArguments(std::span<const char* const> words);

}  // namespace adaptive_train::plugin
