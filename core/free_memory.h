// How much memory is left for this process now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/cluster.h"

namespace adaptive_train {

/// What all processes of the job may still take on this node, and why no more: the least of what
/// ROOT/proc/meminfo says is available, and of every control group's limit less what is in use
/// there; cached files can give way. None: nothing can be read.
std::optional<MemoryLimit> FreeMemory(const std::string& root = "");

/// What this process may still take by its own limits (RLIMIT_DATA, RLIMIT_AS). None: no limit.
std::optional<MemoryLimit> FreeInProcess();

/// How many processes of this process's control group the system has ended so far because memory
/// was short. 0 where no group counts them.
std::int64_t KilledForMemory(const std::string& root = "");

/// Bytes of this process in memory.
std::int64_t ResidentBytes();

}  // namespace adaptive_train
