// Looks for a better plan while the ranks train, and says when to move to it or leave it again.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/control_message.h"
#include "core/plan.h"
#include "core/result.h"
#include "launcher/run/replan_decision.h"
#include "launcher/run/replan_watch.h"

namespace adaptive_train {

/// The planner's result from new measurements.
struct PlanPair {
  Plan now;                // the current plan, its step priced again
  Plan candidate;          // the best one
  double layer_error = 0;  // error of the layer times behind both, as in LayerError
};

/// Plans with the ranks' measurements (index = rank). Runs on a separate thread, since a plan for
/// thousands of devices takes longer than ranks may go without their launcher. It must touch no
/// shared data, and end soon after the stop is requested.
using PlanSearch = std::function<Result<PlanPair>(std::vector<LayerTimes>, const std::stop_token&)>;

/// How a run came to a plan; empty for its first plan.
struct PlanHistory {
  std::optional<StepTimes> before;  // of the old plan
  std::vector<Plan> left;           // left as no faster than another: never moved to again
};

/// Serves the ranks of one plan. All members from one thread; the destructor stops a running search.
class Replanner {
 public:
  Replanner(const ReplanWatch::Settings& settings, PlanSearch search, PlanHistory history = {})
      : watch_(settings), search_(std::move(search)), history_(std::move(history)) {}
  ~Replanner() { stop_.request_stop(); }

  /// Returns true if the last rank's times complete those of all, which are then worth storing.
  bool Measured(int rank, const LayerTimes& times) { return watch_.Measured(rank, times); }
  const std::vector<LayerTimes>& Times() const { return watch_.Times(); }

  /// What to do after a step of all ranks.
  struct Answer {
    bool measure_layers = false;  // let the ranks measure
    std::optional<Plan> move_to;  // save, stop, continue with this plan
    StepTimes left;               // with move_to: the steps of the old plan
    bool go_back = false;         // save, stop, continue with the previous plan
    bool compared = false;        // `line` is the result of a move and belongs to the plan
    std::string line;             // for people; may be empty
  };
  Answer AfterStep(double step_s, std::int64_t remaining_steps, const MovingCost& cost);

 private:
  Answer Judge(std::int64_t remaining_steps, const MovingCost& cost);
  Answer Compare(std::int64_t remaining_steps, const MovingCost& cost) const;

  ReplanWatch watch_;
  const PlanSearch search_;
  const PlanHistory history_;
  std::stop_source stop_;
  std::future<Result<PlanPair>> searching_;
};

}  // namespace adaptive_train
