// Looks for a better plan while the ranks train, and says when it should be moved to or left again.
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
#include "launcher/run/replan_watch.h"

namespace adaptive_train {

/// What the planner makes of new measurements.
struct PlanPair {
  Plan now;                // the plan that runs, its step priced anew
  Plan candidate;          // the best one
  double layer_error = 0;  // of the layer times that both rest on, as in LayerError
};

/// Plans with what the ranks measured (index = rank). Called on a thread of its own, as a plan for
/// thousands of devices takes longer than ranks may go without hearing the launcher: it must touch
/// nothing that others write.
using PlanSearch = std::function<Result<PlanPair>(std::vector<LayerTimes>)>;

/// Where a plan's ranks come from: none for a run's first plan.
struct PlanHistory {
  std::optional<StepTimes> before;  // of the plan that was left for this one
  std::vector<Plan> left;           // turned out no faster than another: not moved to again
};

/// Of the ranks of one plan. All members from one thread; none blocks but the destructor, which
/// waits for a search under way.
class Replanner {
 public:
  Replanner(const ReplanWatch::Settings& settings, PlanSearch search, PlanHistory history = {})
      : watch_(settings), search_(std::move(search)), history_(std::move(history)) {}

  /// Beside it, the last rank's times complete those of all: they are worth keeping then.
  bool Measured(int rank, const LayerTimes& times) { return watch_.Measured(rank, times); }
  const std::vector<LayerTimes>& Times() const { return watch_.Times(); }

  /// What to do after a step of all ranks.
  struct Answer {
    bool measure_layers = false;  // let the ranks measure
    std::optional<Plan> move_to;  // save, stop, go on by this plan
    StepTimes left;               // with move_to: the steps of the plan that is left
    bool go_back = false;         // save, stop, go on by the plan before this one
    bool compared = false;        // the line is what became of a move: it belongs to the plan
    std::string line;             // for a person; empty: nothing to tell
  };
  Answer AfterStep(double step_s, std::int64_t remaining_steps, const MovingCost& cost);

 private:
  Answer Judge(std::int64_t remaining_steps, const MovingCost& cost);
  Answer Compare(std::int64_t remaining_steps, const MovingCost& cost) const;

  ReplanWatch watch_;
  const PlanSearch search_;
  const PlanHistory history_;
  std::future<Result<PlanPair>> searching_;
};

}  // namespace adaptive_train
