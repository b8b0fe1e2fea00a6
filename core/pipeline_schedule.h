// What a pipeline stage does in which order.
#pragma once

#include <vector>

namespace adaptive_train {

/// Forward or backward of one micro-batch.
struct ScheduledAction {
  bool backward = false;
  int micro_batch = 0;
  bool operator==(const ScheduledAction&) const = default;
};

/// One-forward-one-backward (Narayanan et al. 2021, PipeDream-Flush): stage `stage` of `stages`
/// runs ahead by at most `stages - stage` micro-batches. With one stage: forward, backward of each
/// micro-batch in turn.
std::vector<ScheduledAction> OneForwardOneBackward(int stages, int stage, int micro_batches);

}  // namespace adaptive_train
