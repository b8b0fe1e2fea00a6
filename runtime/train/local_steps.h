// Which steps of a run the replicas make apart.
#pragma once

#include <cstdint>

#include "core/config.h"
#include "core/plan.h"

namespace adaptive_train {

/// Local SGD with AdamW as each replica's optimizer (Stich, 2019), after steps whose gradients are
/// summed (post-local SGD; Lin et al., 2020). In a local step each replica makes its own update from
/// its own gradients. At the end of a round parameters and both moments become their means over the
/// replicas, by shares of the batch: all replicas then have one state, which a checkpoint may keep.
struct LocalSteps {
  static LocalSteps Of(const Config& config, const Plan& plan);

  /// Whether step `step`, from 1, is one.
  bool Has(std::int64_t step) const { return round > 0 && step > summed; }
  /// Whether such a step is the last of a round.
  bool EndsRound(std::int64_t step) const { return (step - summed) % round == 0; }

  std::int64_t summed = 0;  // steps at the start of the run
  std::int64_t round = 0;   // steps; 0: there are no local ones
};

/// Of the batch, a rank's samples.
inline double ShareOf(const Plan& plan, const RankPlan& rank) {
  return static_cast<double>(rank.samples) / static_cast<double>(plan.global_batch);
}

}  // namespace adaptive_train
