#include "launcher/run/recovery.h"

#include <algorithm>
#include <utility>

namespace adaptive_train {

std::optional<std::vector<std::string>> Recovery::After(const RunOutcome& outcome) {
  trained_ = trained_ || outcome.trained;
  const bool progress = outcome.last_step > farthest_;
  farthest_ = std::max(farthest_, outcome.last_step);
  if (!outcome.failure || outcome.failure->reported || outcome.stop_asked || !trained_)
    return std::nullopt;
  in_a_row_ = progress ? 1 : in_a_row_ + 1;
  if (in_a_row_ > settings_.attempts) return std::nullopt;
  ++count_;
  std::vector<std::string> lost = outcome.silent_nodes;
  std::erase(lost, settings_.own_node);
  return lost;
}

}  // namespace adaptive_train
