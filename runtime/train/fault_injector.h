// Does to a rank what `run --inject` asks for: core/injection.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/injection.h"
#include "core/plan.h"

namespace adaptive_train {

/// The faults of one rank. One thread. Each happens once; those of steps before the first one that
/// begins never do, but for a save: that of the first save from its step on fails.
class FaultInjector {
 public:
  /// `tell` is called with each fault just before it happens, and must have told it when it
  /// returns: the process may be gone then. A save fails on rank 0.
  FaultInjector(const std::vector<RunInjection>& all, const Plan& plan, int rank,
                std::function<void(const Injection&)> tell);

  /// Kills or stops this process if that is asked for at `step`. Otherwise gives the share of its
  /// speed at which this rank is to compute in that step, 1 unless it is to be slow.
  double BeginStep(std::int64_t step);
  /// Whether writing the state after `step` is to fail. True once a fault.
  bool FailsSave(std::int64_t step);

 private:
  struct Due {
    Injection injection;
    bool told = false;
  };
  std::vector<Due> due_;
  std::function<void(const Injection&)> tell_;
};

}  // namespace adaptive_train
