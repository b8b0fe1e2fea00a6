// Whether a schedule can run, and what it holds at most.
#pragma once

#include <string>
#include <vector>

#include "core/schedule/schedule.h"

namespace adaptive_train {

/// What a schedule must have besides forwards and backwards. What it has without need must be
/// right as well.
struct ScheduleNeeds {
  bool communication = false;  // sends and receives between ranks
  bool reduce = false;
  bool gather = false;
  bool step = false;
  int weight_versions = 1;                 // 2: a forward may use weights that are one update old
  std::vector<double> activation_bytes{};  // of a micro-batch, index = stage; empty: none
  std::vector<double> rank_bytes{};        // of activations at most, index = rank; empty: any
};

/// High-water marks. Activations are held from a forward to the end of the same micro-batch's
/// backward: with a backward in halves, of the second one.
struct ScheduleUse {
  std::vector<int> in_flight;  // micro-batches, index = stage
  std::vector<double> bytes;   // of activations, index = rank
};

/// Why a schedule cannot run: one line, and the grid with the place marked.
struct ScheduleFault {
  std::string message;
  std::string grid;
};

/// Accepts a schedule of which all of this holds: each action stands once, at the rank of its
/// stage; a stage takes its micro-batches in ascending order through each kind of action, and what
/// needs another action stands after it; a reduce or step has all gradients up to its micro-batch
/// and no later one; all stages step after the same micro-batches; receives of a pair of ranks
/// are posted in the order of the other side's sends; no rank waits for ever (DryRun); activations
/// stay within their limits.
tl::expected<ScheduleUse, ScheduleFault> CheckSchedule(const Schedule& schedule,
                                                       const ScheduleNeeds& needs = {});

}  // namespace adaptive_train
