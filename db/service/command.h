// Runs programs for adaptive-traind.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// What `words` print, the first of which is found by PATH, if it ends with 0 by the deadline and
/// prints no more than 1 MiB. Otherwise it is killed. No shell. Blocks. Errors: one line.
Result<std::string> OutputOf(const std::vector<std::string>& words,
                             std::chrono::steady_clock::time_point deadline);

}  // namespace adaptive_train
