// What this node's memory keeps of a run saved when its ranks are gone and could not save.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {

/// Whether a run that ends so has steps that memory may have alone. Not where a person asked to end at
/// once, where ranks have found that they disagree, or where the disk is the trouble.
bool NeedsMemory(const RunOutcome& outcome);

struct MemorySave {
  std::string worker;                  // absolute path of adaptive-train-worker
  std::string run_dir;                 // absolute
  std::string kept;                    // the folder in shared memory
  std::int64_t least = 1;              // no older step
  std::int64_t committed = 0;          // the newest step that all ranks have reported
  std::chrono::seconds patience{540};  // for each block of the checkpoint
  std::optional<double> end_s = {};    // of all, from now; none: no such time is known
};

/// Lets a worker write the newest whole state as a checkpoint of the run, and gives its step. Blocks;
/// a worker that writes nothing for `patience`, or is not done at the end, is killed. Fails in one
/// line. A held-back signal that asks to stop ends it, too (stop_signals.h).
Result<std::int64_t> SaveFromMemory(const MemorySave& save);

}  // namespace adaptive_train
