// Detects training that does not progress, since steps are skipped for gradients that are not
// finite.
#pragma once

#include <cstdint>

#include "core/result.h"

namespace adaptive_train {

/// Watches every step of a run. A value.
class SkipWatch {
 public:
  /// `limit` skipped steps in a row are too many; 0: no limit.
  explicit SkipWatch(std::int64_t limit) : limit_(limit) {}

  /// Records a step. Fails with kRankFailure when the limit is reached.
  Result<void> See(std::int64_t step, bool skipped);
  /// Fails with kRankFailure if there were steps and each of them was skipped.
  Result<void> AtEnd() const;

 private:
  std::int64_t limit_;
  std::int64_t seen_ = 0, skipped_ = 0, in_a_row_ = 0;
};

}  // namespace adaptive_train
