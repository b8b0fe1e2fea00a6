// How long a schedule takes when every action takes what it is said to take.
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace adaptive_train {

/// Seconds of one micro-batch, of whatever the stage runs on. A backward in one piece takes both
/// halves. Zero for a stage without layers.
struct StageSeconds {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double reduce = 0;  // of the exchange; runs beside computing
  double gather = 0;  // as well
  double step = 0;
  /// Of forward, and of backward_input: the processor's part in moving a pass's messages.
  double moving = 0;
  bool operator==(const StageSeconds&) const = default;
};

struct PlayCosts {
  std::vector<StageSeconds> stages;
  /// Of a micro-batch's activations from stage s to s + 1, or of their gradient back, index = s.
  /// Counts between different ranks only.
  std::vector<double> transfer_s;
  bool operator==(const PlayCosts&) const = default;
};

struct PlayedAction {
  Action action;
  double begin = 0, end = 0;  // seconds; of a send until the message is there
};

/// Index = rank.
struct SchedulePlay {
  std::vector<std::vector<PlayedAction>> ranks;
  std::vector<double> busy_s;  // forwards, backwards and updates
  double makespan_s = 0;       // to the end of the last action
  /// The share of ranks x makespan in which nothing is computed.
  double Bubble() const;
};

/// Each rank takes its actions in their order and waits for what they need: a forward or backward
/// for its input; an update for its reduce; a stage's first forward for its gather. Messages of a
/// rank in the same direction follow one another, as do its reduces, and its gathers. Sends,
/// receives, reduces and gathers take no time of the rank, but for the moving of messages: what of
/// it falls into the wait before a pass does not lengthen the pass. Without sends in the schedule messages
/// leave as they are made. The schedule must have passed CheckSchedule; costs are of its stages.
SchedulePlay PlaySchedule(const Schedule& schedule, const PlayCosts& costs);

}  // namespace adaptive_train
