// The part of CheckSchedule that looks at each rank's row alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/schedule/check.h"
#include "core/schedule/dry_run.h"

namespace adaptive_train {

struct RowFault {
  SchedulePlace place;
  std::string message;
};

/// Every action once, at its rank, in ascending order and after what it needs of its own rank.
std::optional<RowFault> CheckRows(const Schedule& schedule, const ScheduleNeeds& needs);

/// The last micro-batch of each of a stage's updates, in the order of its row.
std::vector<int> StepsOf(const Schedule& schedule, int stage);

}  // namespace adaptive_train
