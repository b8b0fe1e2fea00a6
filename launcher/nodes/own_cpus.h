// The processors that this process may run on.
#pragma once

#include <string>

namespace adaptive_train {

struct OwnCpus {
  int cores = 0;
  int threads = 0;  // hardware threads; 0: unknown
};

/// Counts what the process's affinity allows, which Slurm may hold a job's step to. Cores are told
/// apart by files below `root`; a thread of which they say nothing counts as a core.
OwnCpus FindOwnCpus(const std::string& root = "");

}  // namespace adaptive_train
