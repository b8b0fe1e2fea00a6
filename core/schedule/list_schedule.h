// A schedule for uneven stages, made from each stage's own times.
#pragma once

#include <cstdint>
#include <vector>

#include "core/schedule/play.h"
#include "core/schedule/schedule.h"

namespace adaptive_train {

/// Stages of ranks that differ. Chunks per rank = stages / ranks.
struct UnevenPipeline {
  int ranks = 1;
  int micro_batches = 1;
  PlayCosts costs;                       // reduce, gather and step are not looked at
  std::vector<double> activation_bytes;  // of a micro-batch, from its forward to the end of its
                                         // backward, index = stage
  std::vector<double> rank_bytes;        // of activations at most, index = rank
};

struct ListSchedule {
  Schedule schedule;  // forwards and backwards in halves
  double makespan_s = 0;
  double bound_s = 0;  // no order takes less (ScheduleBound)
  double Gap() const { return bound_s > 0 ? makespan_s / bound_s - 1 : 0; }
};

/// The shortest of several list schedules (Graham 1966: whenever a rank is free it takes the first
/// action of a priority list that can go on), improved by moving actions of the critical path
/// within their ranks. The lists differ in when the weights' gradients fill a gap, whether forward
/// or backward comes first, and how far ranks run ahead. Each stage takes its micro-batches in
/// ascending order. `moves` limits the search: about 10 us each for a thousand actions. Once
/// made, a schedule goes to the ranks as text: another machine's rounding could make another one.
/// Fails in one line where the numbers do not fit together, or a rank cannot hold one micro-batch of
/// each of its stages.
Result<ListSchedule> MakeListSchedule(const UnevenPipeline& pipeline, int moves = 5'000);

/// Seconds that every schedule with these times and limits takes. With K_s micro-batches that stage
/// s can hold (at most m), h_s the time until its first input is there, r_s the way of a
/// micro-batch from the end of its forward to the begin of its backward, and l_s the time from the
/// end of its input gradient to the end of the same micro-batch everywhere: the largest over s of
///   h_s + work_s + max(0, r_s - (K_s - 1) f_s) + max(0, r_s + i_s + l_s - K_s (i_s + w_s)),
/// before its first and after its last round trip there is no more work at hand (of the two last
/// terms the larger one where K_s = m, as then both may be one);
///   h_s + floor((m - 1) / K_s) (f_s + r_s + i_s + w_s) + f_s + r_s + i_s + l_s,
/// as a forward must wait for the end of the K_s-th micro-batch before it; and, with several
/// chunks, the work of a rank after its first input is there.
double ScheduleBound(const UnevenPipeline& pipeline);

}  // namespace adaptive_train
