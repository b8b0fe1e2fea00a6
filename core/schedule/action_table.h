// A value for each action that a schedule can have.
#pragma once

#include <cstddef>
#include <vector>

#include "core/schedule/schedule.h"

namespace adaptive_train {

/// Index = (stage, kind, micro-batch). A backward in one piece and its first half share a place, as
/// they make the same thing for the stage before.
template <class T>
class ActionTable {
 public:
  ActionTable(const Schedule& schedule, const T& value)
      : micro_batches_(static_cast<std::size_t>(schedule.micro_batches)),
        values_(static_cast<std::size_t>(schedule.stages) * micro_batches_ * kActionKinds, value) {}

  T& At(const Action& action) { return values_[IndexOf(action)]; }
  const T& At(const Action& action) const { return values_[IndexOf(action)]; }

 private:
  std::size_t IndexOf(const Action& action) const {
    const ActionKind kind =
        action.kind == ActionKind::kBackward ? ActionKind::kBackwardInput : action.kind;
    return (static_cast<std::size_t>(action.stage) * micro_batches_ +
            static_cast<std::size_t>(action.micro_batch)) *
               kActionKinds +
           static_cast<std::size_t>(kind);
  }

  std::size_t micro_batches_;
  std::vector<T> values_;
};

}  // namespace adaptive_train
