#include "launcher/run/known_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace adaptive_train {

void KnownCheckpoint::Add(const Resumed& resumed) {
  if (resumed.step == 0 || resumed.from_memory) return;
  step_ = resumed.step;
  path_.clear();
}

void KnownCheckpoint::Add(const Saved& saved) {
  step_ = saved.step;
  path_ = saved.path;
}

std::int64_t KnownCheckpoint::StepsAfter(std::int64_t last_step) const {
  return std::max<std::int64_t>(0, last_step - step_.value_or(0));
}

std::string KnownCheckpoint::WhatIsLost(std::int64_t last_step) const {
  const std::int64_t lost = StepsAfter(last_step);
  if (!step_) return fmt::format("no checkpoint is known: all {} steps are lost", lost);
  return fmt::format("the newest known checkpoint is that of step {}: {}{} steps after it are lost",
                     *step_, path_.empty() ? "" : path_ + ", ", lost);
}

std::string KnownCheckpoint::HowToGoOn(std::int64_t last_step, const std::string& run_dir,
                                       const Allocation& where) const {
  const std::string by_job =
      where.in_slurm ? fmt::format(", or adaptive-train run --continue {},", where.ShownId()) : "";
  return fmt::format(
      "the same command with --run-dir {}{} goes on from the checkpoint of step {} ({} steps came "
      "after it)",
      run_dir, by_job, *step_, StepsAfter(last_step));
}

}  // namespace adaptive_train
