// Gives a layout the schedule that is asked for, and the chunks that it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// none = the planner decides.
struct ScheduleRequest {
  std::optional<ScheduleKind> kind;
  std::optional<std::int64_t> interleave;  // chunks per rank
  bool list = false;                       // made from the stages' times

  /// Chunks per rank, of whatever layout has more than one stage.
  int Chunks() const;
  ScheduleKind Kind() const;
  std::string Name() const;
  bool IsOpen() const { return !kind && !interleave && !list; }
};

/// `found`, which is planned for one-forward-one-backward, with the schedule of the request. With
/// several chunks per rank layers are cut as the request says, or anew: each rank's share of the work
/// stays about what its devices can do, and boundaries move as long as the step gets shorter. One stage needs no
/// schedule. Adds to `why` what it decided. Fails with kNoPlan if there are too few layers for the
/// chunks, or if what the schedule holds in flight does not fit.
Result<Layout> WithSchedule(const PlanProblem& problem, const Layout& found,
                            const ScheduleRequest& request, std::vector<std::string>& why);

/// `found` with the schedule that makes its step shortest, of those that an open request may be
/// given: one-forward-one-backward, the list schedule, and unless cuts are asked for two chunks per
/// rank. Another than the
/// first must be 3 % faster, which is less than what predictions of steps are off by. Very large
/// pipelines keep the first.
Layout WithFastestSchedule(const PlanProblem& problem, const Layout& found,
                           std::vector<std::string>& why);

}  // namespace adaptive_train
