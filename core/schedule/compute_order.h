// In which order ranks compute: the published pipeline schedules.
#pragma once

#include <string_view>

#include "core/orders.h"
#include "core/schedule/schedule.h"

namespace adaptive_train {

enum class ScheduleKind : std::uint8_t {
  kGPipe,                  // all forwards, then all backwards (Huang et al. 2019)
  kOneForwardOneBackward,  // PipeDream-Flush (Narayanan et al. 2021)
  kInterleaved,            // the same with several chunks per rank (Narayanan et al. 2021, 2.2)
  kZeroBubbleH1,           // backward in halves, ZB-H1 (Qi et al. 2023, 2401.10241)
  kBreadthFirst,           // each chunk's micro-batches in one go (Lamy-Poirier 2022, 2211.05953)
  kPipeDream2Bw,           // no flush, two versions of the weights (Narayanan et al. 2020)
};

/// "gpipe", "1f1b", "interleaved", "zb-h1", "breadth-first", "pipedream-2bw".
template <>
std::span<const std::string_view> NamesOf<ScheduleKind>();

/// How many versions of the weights a run has. With two, steps follow each other without a flush.
constexpr int WeightVersionsOf(ScheduleKind kind) {
  return kind == ScheduleKind::kPipeDream2Bw ? 2 : 1;
}
/// Steps of the schedule that a run goes by. Without a flush: a first one, one like all that follow
/// it, and a last one.
constexpr int StepsOf(ScheduleKind kind) { return WeightVersionsOf(kind) > 1 ? 3 : 1; }

struct ScheduleShape {
  int ranks = 1;
  int chunks = 1;         // stages per rank
  int micro_batches = 1;  // of one step
  int steps = 1;          // more than one only without a flush
};

/// Forwards and backwards alone; passes.h adds the rest. Any number of micro-batches will do, also
/// fewer than ranks. Each stage takes its micro-batches in ascending order, forward and backward.
/// In flight at rank r, in micro-batches of a stage, at most: gpipe and breadth-first all m; 1f1b
/// min(m, ranks - r); zb-h1 min(m, ranks); pipedream-2bw min(m + 1, ranks - r). A rank's stages
/// together: interleaved 2 (ranks - r - 1) + (chunks - 1) g + 1 with g = ranks where ranks divides
/// m. Fails in one line where the kind has no such shape: only interleaved and breadth-first have
/// chunks, only pipedream-2bw has steps.
Result<Schedule> ComputeOrder(ScheduleKind kind, const ScheduleShape& shape);

}  // namespace adaptive_train
