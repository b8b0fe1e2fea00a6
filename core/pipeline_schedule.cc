#include "core/pipeline_schedule.h"

#include <algorithm>

namespace adaptive_train {

std::vector<ScheduledAction> OneForwardOneBackward(int stages, int stage, int micro_batches) {
  const int ahead = std::min(micro_batches, stages - 1 - stage);
  std::vector<ScheduledAction> actions;
  actions.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (int i = 0; i < ahead; ++i) actions.push_back({false, i});
  for (int i = ahead; i < micro_batches; ++i) {
    actions.push_back({false, i});
    actions.push_back({true, i - ahead});
  }
  for (int i = micro_batches - ahead; i < micro_batches; ++i) actions.push_back({true, i});
  return actions;
}

int MostInFlight(std::span<const ScheduledAction> schedule, int chunk) {
  int held = 0, most = 0;
  for (const ScheduledAction& action : schedule) {
    if (action.chunk == chunk) most = std::max(most, held += action.backward ? -1 : 1);
  }
  return most;
}

}  // namespace adaptive_train
