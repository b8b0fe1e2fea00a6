// Which run's kept states are a rank's, and where on its node they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/plan.h"

namespace adaptive_train {

/// A value. Ranks of one node have the same.
struct KeptRun {
  std::string key;           // of the launcher's process; empty: nothing is kept
  std::string job = "0";     // Slurm's number; "0" without Slurm
  std::int64_t attempt = 0;  // launch of the run's ranks; later ones have larger numbers
  /// The newest step that all ranks have reported. None: this launch is the first, and there is
  /// nothing to go on from.
  std::optional<std::int64_t> committed;

  /// Below kKeptRoot, for the ranks of a node.
  std::string FolderName(const std::string& node) const;
};

/// What the launcher has said in the environment: ADAPTIVE_TRAIN_MEMORY_KEY, ADAPTIVE_TRAIN_JOB,
/// ADAPTIVE_TRAIN_ATTEMPT and ADAPTIVE_TRAIN_COMMITTED.
KeptRun KeptRunFromEnvironment();

/// The lowest rank on the same node, which speaks for it.
int FirstOnNode(const Plan& plan, int rank);

}  // namespace adaptive_train
