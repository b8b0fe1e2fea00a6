// One job step over the allocation that measures links and devices. Its ranks run
// runtime/measure/link_profiler.h.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/cluster.h"
#include "core/config.h"
#include "core/measure_order.h"
#include "core/profile.h"
#include "core/result.h"
#include "launcher/measure/link_rounds.h"
#include "launcher/nodes/allocation.h"
#include "launcher/steps/ending_steps.h"
#include "launcher/steps/programs.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {

/// How long the ranks of a measuring step may take to end before the nodes are measured again.
inline constexpr std::chrono::seconds kMeasureEndPatience{4};

/// Where to measure.
struct MeasureSite {
  const Allocation& allocation;
  const Cluster& cluster;  // of the allocation; ranks follow its order of nodes
  const Programs& programs;
  std::string run_dir;  // absolute, visible to all nodes, with logs/ in it
  EndingSteps& ending;  // takes the step of ranks that failed, which the caller awaits
  /// Receives lines for the person who watches; may be empty.
  std::function<void(const std::string&)> on_notice;
  /// Receives each launch attempt, as in SupervisorEvents; may be empty.
  std::function<void(int attempt, const std::string& outcome, const std::string& reason)> on_launch;
  LaunchConfig launch = {};
  /// Receives how a step ended whose ranks failed; may be empty.
  std::function<void(const RunOutcome&)> on_failure = {};
};

/// What to measure.
struct MeasureTask {
  MeasureRounds rounds;      // of indices of cluster.nodes
  std::vector<int> devices;  // nodes whose device and inner link are measured
};

struct Measured {
  Profile profile;
  double seconds = 0;  // from all ranks wired up to the end of the step
  double launch_seconds = 0;
};

/// The nodes with their devices, as a measuring step numbers and names them.
std::vector<MeasuredNode> MeasuredNodes(const Cluster& cluster);

/// Runs the step with one process per node, in Slurm by srun, otherwise on this machine. A
/// launch that hangs is tried again (kMaxLaunchRetries). Writes measure.json and measured.json
/// in the run folder. Blocks until the step ends, or its ranks have failed. If a node is lost,
/// fails with kRankFailure in one line that names pair and operation; if a signal asked to
/// stop, with 130 or 143. Held signals (stop_signals.h) stay held.
Result<Measured> MeasureLinks(const MeasureSite& site, const MeasureTask& task);

}  // namespace adaptive_train
