// One attempt at running all ranks: in Slurm or on this machine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/failure_kind.h"
#include "core/launch_settings.h"
#include "core/plan.h"
#include "core/result.h"
#include "launcher/steps/child_process.h"
#include "launcher/steps/slurmd_place.h"

namespace adaptive_train {

/// What a step is made of. The step copies what it keeps.
struct JobStepSpec {
  const Plan* plan = nullptr;
  std::string run_dir;  // absolute; rank logs go to RUN_DIR/logs/rank-N.log
  std::string worker;   // absolute path of adaptive-train-worker
  std::string mode;     // its first argument, and the logs are then RUN_DIR/logs/MODE-N.log
  std::chrono::seconds saving_patience{540};  // the configuration's checkpoint.patience_s
  Environment environment;  // of the ranks, complete but for what Slurm and PMIx add
  LaunchConfig launch = {};
  std::string first_rank = {};  // IP address of the first rank's host; empty: not known
  SlurmdPlaces slurmds = {};    // of the plan's nodes; what is missing is not known
  /// RunOutcome::hellos of an earlier launch of the run, if there was one.
  std::optional<HelloTimes> usual_hellos = {};
};

/// Where a rank's output goes, within the run folder; `rank` is its number or a pattern for it.
inline std::string RankLog(const std::string& mode, const std::string& rank) {
  return "/logs/" + (mode.empty() ? "rank" : mode) + "-" + rank + ".log";
}

/// Something the step learned about a rank's process by itself.
struct RankEnd {
  int rank = -1;
  std::string how;  // "killed by signal 9 (Killed)"
  bool by_signal = false;
  FailureKind kind = FailureKind::kUnknown;
};

/// Running ranks. One thread. The destructor makes sure that no process of the step on this machine
/// is left; ranks elsewhere end at the latest when they have missed the launcher for
/// LaunchDeadlines::launcher_silence.
class JobStep {
 public:
  virtual ~JobStep() = default;
  /// Looks, without blocking, at what became of the processes.
  virtual void Poll() = 0;
  /// Everything this step started on this machine has ended.
  virtual bool Over() const = 0;
  /// Whether the next step may start before this one is over, once its ranks have left.
  virtual bool MayEndBeside() const = 0;
  /// Ranks that ended since the last call, as far as the step can tell.
  virtual std::vector<RankEnd> TakeEnds() = 0;
  /// What went wrong with the step as a whole, one line; empty if nothing is known.
  virtual std::string Trouble() const = 0;
  /// The node that Trouble is about; empty if it names none.
  virtual std::string TroubledNode() const = 0;
  /// Whether that may be over when the step is launched once more.
  virtual bool TroubleMayPass() const = 0;
  /// Kills all ranks, everywhere, without waiting: at once, or in Poll those that have not ended by
  /// themselves, as they were told to. `step_id` is what the ranks said in their hello.
  virtual void Kill(const std::string& step_id) = 0;
};

/// Starts one attempt; the one before must be over, or killed and one that MayEndBeside. The factory
/// outlives its steps.
using JobStepFactory = std::function<Result<std::unique_ptr<JobStep>>(const JobStepSpec&)>;

/// srun in the current allocation (slurm_step.cc).
JobStepFactory SlurmSteps();
/// A process of ours with a PMIx server, on this machine (local_step.cc).
JobStepFactory LocalSteps();

/// What the process of a local step is told.
struct LocalStepRequest {
  int ranks = 0;
  std::string run_dir;
  std::string worker;
  std::string mode;         // as in JobStepSpec
  std::string pmix_folder;  // the server's own, empty
};

/// The body of that process, run by `adaptive-train local-step`: its environment is the ranks'.
/// Does not return.
[[noreturn]] void RunLocalStep(const LocalStepRequest& request);

}  // namespace adaptive_train
