// Which actions of a schedule can be reached, and the picture of ranks and time in text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"

namespace adaptive_train {

/// Whether ranks send what they make, as AddSendsAndReceives has it. Otherwise actions count as
/// done for other ranks as soon as they are.
bool HasSends(const Schedule& schedule);

/// What of another stage a forward or backward waits for: the neighbour's send, or without sends,
/// and between chunks of one rank, the neighbour's forward or backward. None of other actions, and
/// at the ends of the pipeline.
std::optional<Action> InputOf(const Schedule& schedule, const Action& action, bool has_sends);

/// When each action happens if every one takes a unit of time, index = (rank, place in its row);
/// -1: never, as it waits for what never comes. Sends do not wait for their receives, receives are
/// posted and do not wait either. Stages and micro-batches must be below the schedule's numbers.
std::vector<std::vector<int>> DryRun(const Schedule& schedule);

/// A place in a schedule; `index` one past the row's end where something is missing there.
struct SchedulePlace {
  int rank = 0;
  int index = 0;
};

/// Ranks below each other, time from left to right, the place marked with "<-- here". Of a large
/// schedule the surroundings of the place. Holds for any schedule, also ones that cannot run.
std::string ScheduleGrid(const Schedule& schedule, const SchedulePlace& place);

}  // namespace adaptive_train
