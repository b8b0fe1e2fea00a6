// How jobs ended whose launcher has not said so, or not known: asked of Slurm, which may have
// forgotten.
#pragma once

#include <vector>

#include "db/profile_store.h"
#include "db/records.h"

namespace adaptive_train {

/// Sets the states of rows that say RUNNING, or that a signal has ended in Slurm, to how they ended
/// as far as that can be found out: NODE_FAIL, TIMEOUT, OUT_OF_MEMORY, PREEMPTED, REQUEUED and
/// CANCELLED from Slurm; LOST where the launcher is certainly gone, where Slurm has forgotten the
/// job, or where a run that Slurm cannot be asked about has shown no sign for a day. What Slurm
/// says is stored, so that it is asked once. Asks about the newest 20 rows, until Slurm fails to
/// answer. Blocks for a few seconds at most unless Slurm is slow. Errors of the store and of Slurm
/// are ignored: the rows stay as they were.
void FindOutEndings(ProfileStore& store, std::vector<JobRow>& rows, double now);

}  // namespace adaptive_train
