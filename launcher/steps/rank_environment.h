// The environment that ranks get: an allow-list.
#pragma once

#include "launcher/steps/child_process.h"

namespace adaptive_train {

/// From the launcher's environment: what people set for libraries and what Slurm needs; nothing
/// else, so that a run does not depend on what happens to be set in a shell. Nothing is added.
Environment RankEnvironment(const Environment& launcher);

}  // namespace adaptive_train
