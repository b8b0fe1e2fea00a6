// What holds a job to less memory than its nodes have: what it asked Slurm for, and control groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/cluster.h"
#include "core/result.h"

namespace adaptive_train {

/// What the job was given, in bytes; 0: nothing was said, or no limit.
struct JobMemory {
  std::int64_t per_node = 0;  // --mem
  std::int64_t per_cpu = 0;   // --mem-per-cpu
  std::int64_t per_gpu = 0;   // --mem-per-gpu
};

/// What SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU or SLURM_MEM_PER_GPU means: "500" and "500M" are 500
/// MiB; K, G and T likewise. "0" and what no machine has are 0. Fails on all else; `variable` names
/// it.
Result<std::int64_t> ParseMemory(const std::string& variable, const std::string& text);

/// Reads the three variables (untrusted: they only ever take away). Fails with kPreflight.
Result<JobMemory> FindJobMemory();

/// The least that the job has on a node where it has so many CPUs and GPUs. None: no limit is known,
/// or what it is counted by.
std::optional<MemoryLimit> LimitOf(const JobMemory& memory, int cpus, int gpus);

/// The tightest limit of this process's control groups, from its own up to the top that it can see,
/// versions 1 and 2. None: no limit.
std::optional<MemoryLimit> ControlGroupLimit(const std::string& root = "");

}  // namespace adaptive_train
