// Plans made beforehand, beside training: one for each node that may be lost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "launcher/nodes/spares.h"
#include "launcher/run/plan_inputs.h"

namespace adaptive_train {

/// Makes plans on a thread of its own with the lowest priority (nice 19): ranks run on this node,
/// too. All members from one thread; none blocks, but for the destructor, which waits until the
/// thread has noticed its stop.
class ReadyPlans {
 public:
  /// Runs on that thread. It must touch no shared data, and end soon after the stop is requested.
  using Make = std::function<Result<Plan>(const PlanInputs&, const std::stop_token&)>;

  explicit ReadyPlans(Make make) : make_(std::move(make)) {}

  /// Begins to plan for the loss of each node of `inputs` but `safe`, with the last spare in its
  /// place if there is one; of equal nodes (EqualNodes) once. What was made from other inputs is
  /// dropped; for the same inputs it goes on. Copies all it is given.
  void Prepare(const PlanInputs& inputs, const std::vector<SpareNode>& spares,
               const std::string& safe);

  /// After a loss, with the inputs and spares before it: the plan, if a single node was lost, its
  /// plan is ready, and cluster, profile and spares are those that it was made from; what else
  /// inputs hold does not change in a run. Otherwise none. Plans under way are given up.
  std::optional<Plan> Take(const std::vector<std::string>& lost, const PlanInputs& inputs,
                           const std::vector<SpareNode>& spares);

 private:
  struct Origin {
    PlanInputs inputs;
    std::vector<SpareNode> spares;
    std::string safe;
  };
  /// What the thread hands over.
  struct Shelf {
    std::mutex mutex;
    std::map<std::string, Plan> without;  // by the lost node
  };

  bool MadeFrom(const PlanInputs& inputs, const std::vector<SpareNode>& spares) const;
  static void MakeAll(const Make& make, const Origin& origin, Shelf& shelf,
                      const std::stop_token& stop);

  const Make make_;
  std::optional<Origin> origin_;
  std::shared_ptr<Shelf> shelf_;
  std::jthread thread_;
};

}  // namespace adaptive_train
