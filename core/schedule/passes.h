// Adds to an order of forwards and backwards what ranks do besides, one thing at a time.
#pragma once

#include "core/schedule/schedule.h"

namespace adaptive_train {

/// Sends what a neighbour on another rank needs as soon as it is made. A receive is posted one
/// forward or backward before the one that reads it, and in the order in which the other rank
/// sends, so that transports without tags match them, too.
Schedule AddSendsAndReceives(const Schedule& schedule);

/// Starts to gather each stage's weights one forward or backward before its first forward.
Schedule AddGathers(const Schedule& schedule);

/// Starts the sum of a stage's gradients right after its last backward of each step: once per
/// stage and step. `steps` divides the micro-batches evenly.
Schedule AddReduces(const Schedule& schedule, int steps = 1);

/// The update of each stage, as late as it may be: before the stage's first backward of the next
/// step and its first forward of the one after that, otherwise at the row's end, in the order in
/// which the stages' gradients are complete.
Schedule AddSteps(const Schedule& schedule, int steps = 1);

/// A rank's row of several steps, one piece per step: each ends with the step's reduce, of one
/// stage. Micro-batches count from the step's own first one, so that those of the step after follow
/// its last. Updates are left out.
std::vector<std::vector<Action>> RowsOfSteps(const std::vector<Action>& row, int micro_batches);

/// What of these a run needs.
struct SchedulePasses {
  bool gather = false;  // parameters are sharded
  bool reduce = false;  // there are replicas
  int steps = 1;
};
Schedule WithPasses(const Schedule& compute_order, const SchedulePasses& passes);

}  // namespace adaptive_train
