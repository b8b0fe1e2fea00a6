// Schedules as text: what is accepted reads again as it was written, and the check looks at it
// without stumbling; what passes the check can be played.
#include <cmath>

#include "core/schedule/check.h"
#include "core/schedule/compute_order.h"
#include "core/schedule/passes.h"
#include "core/schedule/play.h"
#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {

void FuzzOne(std::string_view input) {
  const auto schedule = ScheduleFromCsv(input);
  if (!schedule) {
    Require(!schedule.error().message.empty());
    Require(schedule.error().message.find('\n') == std::string::npos);
    return;
  }
  const std::string text = ToCsv(*schedule);
  const auto again = ScheduleFromCsv(text);
  Require(again && *again == *schedule && ToCsv(*again) == text);
  const auto checked = CheckSchedule(*schedule);
  if (!checked) {
    Require(!checked.error().message.empty());
    Require(checked.error().message.find('\n') == std::string::npos);
    Require(checked.error().grid.find("<-- here") != std::string::npos);
    return;
  }
  PlayCosts costs;
  costs.stages.assign(static_cast<std::size_t>(schedule->stages), {1, 1, 1, 1, 1, 1});
  costs.transfer_s.assign(costs.stages.size() - 1, 0.5);
  Require(std::isfinite(PlaySchedule(*schedule, costs).makespan_s));
}

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds{"0F0,0B0\n", "0F0, 0I0 ,0W0\r\n1F0,1B0", ""};
  for (const ScheduleKind kind : {ScheduleKind::kInterleaved, ScheduleKind::kBreadthFirst})
    seeds.push_back(
        ToCsv(WithPasses(ComputeOrder(kind, {2, 2, 3}).value(), {.gather = true, .reduce = true})));
  seeds.push_back(ToCsv(ComputeOrder(ScheduleKind::kZeroBubbleH1, {3, 1, 4}).value()));
  seeds.push_back(ToCsv(
      WithPasses(ComputeOrder(ScheduleKind::kPipeDream2Bw, {2, 1, 2, 3}).value(), {.steps = 3})));
  return seeds;
}

}  // namespace adaptive_train::fuzz
