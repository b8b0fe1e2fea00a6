// Limits of a job's memory below that of its nodes: its request to Slurm, and control groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/cluster.h"
#include "core/result.h"

namespace adaptive_train {

/// The job's memory in bytes; 0: not specified, or no limit.
struct JobMemory {
  std::int64_t per_node = 0;  // --mem
  std::int64_t per_cpu = 0;   // --mem-per-cpu
  std::int64_t per_gpu = 0;   // --mem-per-gpu
};

/// Parses SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU or SLURM_MEM_PER_GPU. "500" and "500M" are 500 MiB;
/// K, G and T likewise. "0" and sizes that no machine has become 0. Anything else is an error that
/// names `variable`.
Result<std::int64_t> ParseMemory(const std::string& variable, const std::string& text);

/// Reads the three variables. They are untrusted, but can only lower a limit. Fails with
/// kPreflight.
Result<JobMemory> FindJobMemory();

/// The smallest limit of the job on a node with this many CPUs and GPUs. None if no limit is known,
/// or the number it depends on.
std::optional<MemoryLimit> LimitOf(const JobMemory& memory, int cpus, int gpus);

/// The tightest limit of this process's control groups, from its own up to the highest visible one,
/// versions 1 and 2. None: no limit.
std::optional<MemoryLimit> ControlGroupLimit(const std::string& root = "");

}  // namespace adaptive_train
