#include "launcher/measure/measure_step.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "core/device_kind.h"
#include "core/file_io.h"
#include "core/plan.h"
#include "core/seconds.h"
#include "launcher/steps/rank_environment.h"
#include "launcher/steps/slurm_step.h"
#include "launcher/steps/stop_signals.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {
namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr std::size_t kMaxProfileBytes = std::size_t{1} << 30;

/// A plan as far as a job step needs one: one rank per node.
Plan OneRankPerNode(const std::vector<MeasuredNode>& nodes) {
  Plan plan;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    RankPlan& rank = plan.ranks.emplace_back();
    rank.rank = static_cast<int>(i);
    rank.device.node = nodes[i].name;
  }
  return plan;
}

/// What the supervisor reports while the step runs.
struct StepWatch {
  double wired_at = 0;
  std::string told_by_rank;  // the first failure as a rank saw it: pair and operation

  SupervisorEvents Events(const MeasureSite& site) {
    SupervisorEvents events;
    events.on_launch = [this, &site](int attempt, const std::string& outcome,
                                     const std::string& reason) {
      if (outcome == "ok") wired_at = SteadySecondsNow();
      if (site.on_launch) site.on_launch(attempt, outcome, reason);
    };
    events.on_notice = [this, &site](const std::string& line) {
      if (line.rfind(kMeasureFailureWord, 0) == 0) {
        if (told_by_rank.empty()) told_by_rank = line;
      } else if (site.on_notice) {
        site.on_notice(line);
      }
    };
    // A measuring rank resumes nothing, trains no steps, decides and saves nothing.
    events.on_resumed = [](const Resumed&) { return Result<void>(); };
    events.on_step = [](std::span<const RankMetrics>) { return Result<void>(); };
    events.on_layer_times = [](int, const LayerTimes&) {};
    events.on_saved = [](const Saved&) {};
    events.on_decision = [](const Decision&) {};
    return events;
  }
};

Error Failure(const RunOutcome& outcome, const StepWatch& watch) {
  const std::string told = watch.told_by_rank.empty() ? "" : " (" + watch.told_by_rank + ")";
  return {"measuring the nodes: " + outcome.message + told, outcome.code};
}

Result<Profile> ReadMeasured(const std::string& path) {
  auto text = ReadFile(path, kMaxProfileBytes);
  auto profile = text ? ProfileFromJson(*text) : Result<Profile>(tl::unexpected(text.error()));
  if (!profile) return Fail(path + ": " + profile.error().message, ExitCode::kRankFailure);
  return profile;
}

}  // namespace

std::vector<MeasuredNode> MeasuredNodes(const Cluster& cluster) {
  std::vector<MeasuredNode> nodes;
  for (const Node& node : cluster.nodes) {
    MeasuredNode& measured = nodes.emplace_back();
    measured.name = node.name;
    for (const Device& device : cluster.devices) {
      if (device.node != node.name || device.kind != "cpu") continue;
      measured.device_kind = DeviceKindName(device);
      measured.threads = device.threads;
      break;
    }
  }
  return nodes;
}

Result<Measured> MeasureLinks(const MeasureSite& site, const MeasureTask& task) {
  MeasureOrder order;
  order.nodes = MeasuredNodes(site.cluster);
  order.rounds = task.rounds;
  for (MeasuredNode& node : order.nodes) node.device = false;
  // GPUs show their speed in the first steps.
  for (const int number : task.devices) {
    MeasuredNode& node = order.nodes[static_cast<std::size_t>(number)];
    node.device = !node.device_kind.empty();
  }
  const std::string answer = site.run_dir + "/" + kMeasuredFile;
  std::error_code ignored;
  std::filesystem::remove(answer, ignored);  // an earlier step may have left one
  auto written = WriteFile(site.run_dir + "/" + kMeasureOrderFile, ToJson(order));
  if (!written) return tl::unexpected(written.error());

  const Plan plan = OneRankPerNode(order.nodes);
  JobStepSpec spec;
  spec.plan = &plan;
  spec.run_dir = site.run_dir;
  spec.worker = site.programs.worker;
  spec.mode = "measure";
  spec.environment = RankEnvironment(CurrentEnvironment());
  spec.launch = site.launch;
  if (site.allocation.in_slurm) spec.slurmds = FindSlurmds(plan);
  spec.first_rank = site.allocation.in_slurm ? AddressOf(spec.slurmds[order.nodes[0].name]) : kHere;
  StepWatch watch;
  const double began = SteadySecondsNow();
  const RunOutcome outcome =
      Supervisor(spec, site.allocation.in_slurm ? SlurmSteps() : LocalSteps(), watch.Events(site),
                 site.ending)
          .Run();
  if (!outcome.failure) site.ending.Await(kMeasureEndPatience);
  if (const auto signal = PendingStopSignal()) return tl::unexpected(StoppedBy(*signal));
  if (outcome.failure && site.on_failure) site.on_failure(outcome);
  if (outcome.code != ExitCode::kDone) return tl::unexpected(Failure(outcome, watch));
  auto profile = ReadMeasured(answer);
  if (!profile) return tl::unexpected(profile.error());
  return Measured{std::move(*profile), SteadySecondsNow() - watch.wired_at, watch.wired_at - began};
}

}  // namespace adaptive_train
