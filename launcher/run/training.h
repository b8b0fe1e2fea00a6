// The training of a run: its plan's ranks from launch to end, and the move to a better plan if one
// is found.
#pragma once

#include "core/config.h"
#include "core/injection.h"
#include "core/plan.h"
#include "launcher/nodes/allocation.h"
#include "launcher/nodes/spares.h"
#include "launcher/report/run_statistics.h"
#include "launcher/run/job_ledger.h"
#include "launcher/run/plan_inputs.h"
#include "launcher/run/run_folder.h"
#include "launcher/steps/programs.h"
#include "launcher/steps/stop_signals.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {

/// The parts of a run that training uses. All outlive it.
struct RunParts {
  const Config& config;
  const Allocation& allocation;
  const Programs& programs;
  const PlanInputs& inputs;
  const std::vector<SpareNode>& spares;  // the last one is the best
  RunFolder& folder;
  JobLedger& ledger;
  RunStatistics& statistics;
  const std::vector<Injection>& injections;  // asked for, and allowed
};

/// Trains by `plan`. Layer measurements go to the store and to profile.json. If a plan is better by
/// enough, the run saves, stops and restarts with it. After a failure it goes on from the newest
/// state, in memory or on disk, without the nodes that fell silent (Recovery). Blocks until the run
/// is over. `held` is released while ranks run.
RunOutcome TrainRun(RunParts run, Plan plan, HeldSignals& held);

}  // namespace adaptive_train
