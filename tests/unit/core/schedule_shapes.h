// Schedules of every kind and shape, which the tests of schedules share.
#pragma once

#include <string>
#include <vector>

#include "core/schedule/compute_order.h"

namespace adaptive_train {

struct NamedSchedule {
  std::string name;
  ScheduleKind kind;
  ScheduleShape shape;
  Schedule schedule;
};

/// Every kind over 1 to 8 ranks, 1 to 3 chunks where it has chunks, 1 to 12 micro-batches;
/// pipedream-2bw over three steps.
inline std::vector<NamedSchedule> AllSchedules() {
  std::vector<NamedSchedule> all;
  for (int k = 0; k < static_cast<int>(NamesOf<ScheduleKind>().size()); ++k) {
    const auto kind = static_cast<ScheduleKind>(k);
    const bool has_chunks =
        kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kBreadthFirst;
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int chunks = 1; chunks <= (has_chunks ? 3 : 1); ++chunks) {
        for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
          const ScheduleShape shape{ranks, chunks, micro_batches,
                                    kind == ScheduleKind::kPipeDream2Bw ? 3 : 1};
          all.push_back({NameOf(kind) + " p" + std::to_string(ranks) + " v" +
                             std::to_string(chunks) + " m" + std::to_string(micro_batches),
                         kind, shape, ComputeOrder(kind, shape).value()});
        }
      }
    }
  }
  return all;
}

}  // namespace adaptive_train
