// What the ranks of a run are launched with, by one plan after another.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/config.h"
#include "launcher/nodes/allocation.h"
#include "launcher/steps/job_step.h"
#include "launcher/steps/programs.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {

/// The launches of one run, counted: what ranks keep in memory belongs to one of them. One thread.
/// What is passed by reference outlives this.
class RankLaunches {
 public:
  /// `run_dir` is absolute.
  RankLaunches(const Config& config, const Allocation& allocation, const Programs& programs,
               std::string run_dir);

  /// The next one, of a plan that outlives it. `committed` is the newest step that all ranks have
  /// reported; none: there is nothing to go on from. In Slurm it asks for an address: blocks for 25 s
  /// at most.
  JobStepSpec Next(const Plan& plan, std::optional<std::int64_t> committed);
  /// How long its ranks' hellos came apart counts for the next one.
  void LearnFrom(const RunOutcome& outcome);
  /// The folder in which ranks on this node keep their state.
  std::string KeptHere() const;
  /// What ranks that failed have left in this node's memory; on other nodes, Slurm's epilog does it.
  void RemoveKeptHere() const;

 private:
  std::string KeptName() const;

  const Config& config_;
  const Allocation& allocation_;
  const Programs& programs_;
  const std::string run_dir_;
  const std::string memory_key_;  // of states that ranks keep in memory
  std::int64_t attempt_ = 0;
  std::optional<HelloTimes> usual_hellos_;
};

}  // namespace adaptive_train
