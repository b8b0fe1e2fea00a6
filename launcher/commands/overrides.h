// Configuration keys on the command line, for the verbs that take a CONFIG.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "core/result.h"

namespace adaptive_train {

/// Parses "--train.steps=20" and "--train.steps 20", as left over by the command line parser.
/// Anything else is a usage error.
Result<std::vector<ConfigOverride>> ParseOverrides(const std::vector<std::string>& extras);

}  // namespace adaptive_train
