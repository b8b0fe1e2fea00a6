#include "launcher/run/replanner.h"

#include <algorithm>
#include <utility>

#include "launcher/steps/stop_signals.h"

namespace adaptive_train {

Replanner::Answer Replanner::AfterStep(double step_s, std::int64_t remaining_steps,
                                       const MovingCost& cost) {
  Answer answer;
  switch (watch_.AfterStep(step_s)) {
    case ReplanAction::kMeasure:
      answer.measure_layers = true;
      answer.line = "steps have been slower for long: measuring the layers again";
      break;
    case ReplanAction::kDecide:
      searching_ = std::async(std::launch::async,
                              [search = search_, times = watch_.Times(), stop = stop_.get_token()] {
                                LeaveSignalsToOthers();
                                return search(times, stop);
                              });
      break;
    case ReplanAction::kCompare:
      return Compare(remaining_steps, cost);
    case ReplanAction::kGoOn:
      break;
  }
  const bool found = searching_.valid() &&
                     searching_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return found ? Judge(remaining_steps, cost) : answer;
}

Replanner::Answer Replanner::Judge(std::int64_t remaining_steps, const MovingCost& cost) {
  Answer answer;
  Result<PlanPair> plans = searching_.get();
  if (!plans) {
    answer.line = "the plan stays: " + plans.error().message;
    return answer;
  }
  if (std::any_of(history_.left.begin(), history_.left.end(),
                  [&](const Plan& left) { return SameLayout(left, plans->candidate); })) {
    answer.line =
        "the plan stays: the planner finds the plan that this run has left because its steps were "
        "no faster";
    return answer;
  }
  answer.left = watch_.MeasuredSteps();
  ReplanDecision decision = DecideReplan(plans->now, answer.left, plans->candidate,
                                         plans->layer_error, remaining_steps, cost);
  answer.line = std::move(decision.line);
  if (decision.adopt) answer.move_to = std::move(plans->candidate);
  return answer;
}

Replanner::Answer Replanner::Compare(std::int64_t remaining_steps, const MovingCost& cost) const {
  Answer answer;
  if (!history_.before) return answer;
  MoveVerdict verdict = JudgeMove(*history_.before, watch_.MeasuredSteps(), remaining_steps, cost);
  answer.go_back = verdict.go_back;
  answer.compared = true;
  answer.line = std::move(verdict.line);
  return answer;
}

}  // namespace adaptive_train
