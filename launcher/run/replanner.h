// Looks for a better plan while the ranks train, and says when it should be moved to.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "core/control_message.h"
#include "core/plan.h"
#include "core/result.h"
#include "launcher/run/replan_decision.h"

namespace adaptive_train {

/// What the planner makes of new measurements.
struct PlanPair {
  Plan now;        // the plan that runs, its step priced anew
  Plan candidate;  // the best one
};

/// Plans with what the ranks measured (index = rank). Called on a thread of its own, as a plan for
/// thousands of devices takes longer than ranks may go without hearing the launcher: it must touch
/// nothing that others write.
using PlanSearch = std::function<Result<PlanPair>(std::vector<LayerTimes>)>;

/// Of the ranks of one plan. All members from one thread; none blocks but the destructor, which
/// waits for a search under way.
class Replanner {
 public:
  Replanner(const ReplanWatch::Settings& settings, PlanSearch search)
      : watch_(settings), search_(std::move(search)) {}

  /// Beside it, the last rank's times complete those of all: they are worth keeping then.
  bool Measured(int rank, const LayerTimes& times) { return watch_.Measured(rank, times); }
  const std::vector<LayerTimes>& Times() const { return watch_.Times(); }

  /// What to do after a step of all ranks.
  struct Answer {
    bool measure_layers = false;  // let the ranks measure
    std::optional<Plan> move_to;  // save, stop, go on by this plan
    std::string line;             // for a person; empty: nothing to tell
  };
  Answer AfterStep(double step_s, std::int64_t remaining_steps, const MovingCost& cost);

 private:
  Answer Judge(std::int64_t remaining_steps, const MovingCost& cost);

  ReplanWatch watch_;
  const PlanSearch search_;
  std::future<Result<PlanPair>> searching_;
};

}  // namespace adaptive_train
