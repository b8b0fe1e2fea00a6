// Job steps that were killed and are not over yet: they end beside the next one.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "launcher/steps/job_step.h"

namespace adaptive_train {

/// Outlives the supervisors that leave steps to it. One thread. The destructor ends what is left at
/// once, as the steps' own do.
class EndingSteps {
 public:
  /// Takes a step that was killed.
  void Take(std::unique_ptr<JobStep> step);
  /// Without blocking: lets go of the steps that are over.
  void Poll();
  /// Blocks until all are over, for `patience` at most.
  void Await(std::chrono::milliseconds patience);

 private:
  std::vector<std::unique_ptr<JobStep>> steps_;
};

}  // namespace adaptive_train
