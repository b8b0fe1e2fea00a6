// What keeps a plan from being run.
#pragma once

#include <string>

#include "core/plan.h"

namespace adaptive_train {

/// What of a plan this version's runtime cannot run, as one line; empty if it can.
std::string NotRunnable(const Plan& plan);

/// Why a pipeline cannot go on without a flush: its first rank would be ahead by more than a step.
/// Empty if it can.
std::string TooFewMicroBatches(const Plan& plan);

}  // namespace adaptive_train
