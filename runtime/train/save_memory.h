// A run's state in this node's memory saved when its ranks are gone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// Saves what is in the folder `kept` in shared memory, see SaveKept, as a checkpoint of the run in
/// the folder `run_dir`. Gives its step. Reads the configuration and some of the training text.
/// Blocks.
Result<std::int64_t> SaveMemory(const std::string& run_dir, const std::string& kept,
                                std::int64_t least, std::int64_t committed,
                                std::function<void()> on_block);

}  // namespace adaptive_train
