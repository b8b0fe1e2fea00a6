// What a pipeline stage does in which order.
#pragma once

#include <span>
#include <vector>

namespace adaptive_train {

/// Forward or backward of one micro-batch through one of the chunks of a model that a rank holds.
struct ScheduledAction {
  bool backward = false;
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const ScheduledAction&) const = default;
};

/// One-forward-one-backward (Narayanan et al. 2021, PipeDream-Flush): stage `stage` of `stages`
/// runs ahead by at most `stages - stage` micro-batches. With one stage: forward, backward of each
/// micro-batch in turn.
std::vector<ScheduledAction> OneForwardOneBackward(int stages, int stage, int micro_batches);

/// How many micro-batches at most have gone forward through a chunk and not yet backward: so many
/// states it needs. Micro-batches must go backward in the order in which they went forward.
int MostInFlight(std::span<const ScheduledAction> schedule, int chunk);

}  // namespace adaptive_train
