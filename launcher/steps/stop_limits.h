// How long the stop of a run may take where Slurm kills the job soon.
#pragma once

#include <optional>
#include <string>

namespace adaptive_train {

/// Seconds are from now; none: no such time is known.
struct StopLimits {
  std::optional<double> give_up_s = {};  // of the step under way, so that the last one can be saved
  std::optional<double> end_round_s = {};  // of local steps, if it has not ended by itself
  std::optional<double> end_s = {};        // of the ranks, whether they have saved or not
  /// Why no other save is begun; empty: one is. One that is under way has until end_s.
  std::string too_long = {};
};

}  // namespace adaptive_train
