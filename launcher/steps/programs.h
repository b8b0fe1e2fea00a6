// Where the programs of this installation are: beside the one that runs.
#pragma once

#include <string>

#include "core/result.h"

namespace adaptive_train {

/// Absolute paths.
struct Programs {
  std::string self;    // adaptive-train
  std::string worker;  // adaptive-train-worker
  std::string probe;   // adaptive-train-probe
};

/// Looks beside the running executable. Fails with kPreflight, naming what is not there.
Result<Programs> FindPrograms();

}  // namespace adaptive_train
