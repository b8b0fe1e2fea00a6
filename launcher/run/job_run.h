// One `adaptive-train run` from the configuration to the exit code.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/exit_code.h"

namespace adaptive_train {

/// What was typed.
struct RunRequest {
  std::string config;  // path of the TOML file
  std::vector<ConfigOverride> overrides;
  std::string run_dir;  // empty: runs/JOBID or runs/TIME
  std::string store;    // empty: the default store
};

/// Checks everything, plans, trains, records. Prints progress to stdout and, where it ends badly,
/// one line to stderr. Blocks until all is over.
ExitCode RunTraining(const RunRequest& request);

}  // namespace adaptive_train
