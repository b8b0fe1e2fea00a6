// One `adaptive-train run` from the configuration to the exit code.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/exit_code.h"
#include "db/store_location.h"

namespace adaptive_train {

/// The command line.
struct RunRequest {
  Config defaults;     // of the site and the user
  std::string config;  // path of the TOML file
  std::vector<ConfigOverride> overrides;
  std::string run_dir;  // empty: runs/JOBID or runs/TIME
  StoreChoice store;
  std::string inject;  // faults (core/injection.h); empty: none
};

/// Checks, plans, trains and records. Prints progress to stdout, and one line to stderr if the run
/// fails. Blocks until the run is over.
ExitCode RunTraining(const RunRequest& request);

}  // namespace adaptive_train
