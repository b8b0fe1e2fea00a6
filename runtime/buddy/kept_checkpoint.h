// A checkpoint made of what one node keeps in memory, where ranks cannot save any more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_settings.h"

namespace adaptive_train {

/// What is saved, and how.
struct KeptSave {
  std::string kept;            // the node's folder in shared memory, which no rank writes any more
  std::int64_t least = 1;      // no older step
  std::int64_t committed = 0;  // the newest step that all ranks have reported
  CheckpointSettings settings = {};
  std::function<void()> on_block = [] {};  // another one is on disk
};

/// Writes the newest state that is whole in the folder as a checkpoint like any other, and gives its
/// step. Residuals are left out, as other ranks' are elsewhere: a run that compresses begins with
/// zeros again. Older checkpoints stay. Fails in one line, with nothing left, where no state is
/// whole there: other nodes have parts of it. Blocks.
Result<std::int64_t> SaveKept(const KeptSave& save, const CheckpointFolder& folder,
                              const CheckpointOwner& owner);

}  // namespace adaptive_train
