#include "launcher/run/ready_plans.h"

#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <utility>

#include "launcher/planner/equal_nodes.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

/// On Linux a thread has a nice value of its own.
void WorkLast() {
  constexpr int kLowestPriority = 19;
  ::setpriority(PRIO_PROCESS, 0, kLowestPriority);
}

}  // namespace

bool ReadyPlans::MadeFrom(const PlanInputs& inputs, const std::vector<SpareNode>& spares) const {
  return origin_ && origin_->spares == spares && origin_->inputs.cluster == inputs.cluster &&
         origin_->inputs.profile == inputs.profile;
}

void ReadyPlans::Prepare(const PlanInputs& inputs, const std::vector<SpareNode>& spares,
                         const std::string& safe) {
  if (MadeFrom(inputs, spares)) return;
  origin_ = Origin{inputs, spares, safe};
  shelf_ = std::make_shared<Shelf>();
  thread_.request_stop();
  // The new thread waits for the old one: the caller must not.
  thread_ = std::jthread([before = std::move(thread_), make = make_, origin = *origin_,
                          shelf = shelf_](const std::stop_token& stop) mutable {
    LeaveSignalsToOthers();
    WorkLast();
    if (before.joinable()) before.join();
    try {
      MakeAll(make, origin, *shelf, stop);
    } catch (const std::bad_alloc&) {
      // What is not ready is planned after the loss.
    }
  });
}

void ReadyPlans::MakeAll(const Make& make, const Origin& origin, Shelf& shelf,
                         const std::stop_token& stop) {
  const PlanInputs& inputs = origin.inputs;
  for (std::vector<std::string>& alike :
       EqualNodes(inputs.cluster, inputs.dims, inputs.format, inputs.profile, inputs.request)) {
    std::erase(alike, origin.safe);
    if (alike.empty()) continue;
    PlanInputs without = inputs;
    LeaveOut(alike.front(), without.cluster);
    if (!origin.spares.empty()) PutIn(origin.spares.back(), without.cluster);
    const Result<Plan> plan = make(without, stop);
    if (stop.stop_requested()) return;
    if (!plan) continue;  // planning after the loss tells why
    const std::lock_guard lock(shelf.mutex);
    for (const std::string& node : alike)
      shelf.without.emplace(node, Exchanged(*plan, alike.front(), node));
  }
}

std::optional<Plan> ReadyPlans::Take(const std::vector<std::string>& lost, const PlanInputs& inputs,
                                     const std::vector<SpareNode>& spares) {
  if (lost.empty()) return std::nullopt;  // the plan stays
  thread_.request_stop();
  std::optional<Plan> plan;
  if (lost.size() == 1 && MadeFrom(inputs, spares)) {
    const std::lock_guard lock(shelf_->mutex);
    const auto found = shelf_->without.find(lost.front());
    if (found != shelf_->without.end()) plan = std::move(found->second);
  }
  origin_.reset();
  return plan;
}

}  // namespace adaptive_train
