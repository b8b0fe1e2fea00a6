// The plugin in slurmd and its prolog and epilog: takes a snapshot of the node for a job that asks
// for it, and removes it with the job. Any error is one line in slurmd's log; returning -1 would
// drain the node and hold the job.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/job_env.h"
#include "core/kept_folder.h"
#include "core/limits.h"
#include "spank_plugin/hooks.h"
#include "spank_plugin/options.h"
#include "spank_plugin/run_probe.h"
#include "spank_plugin/snapshot_folder.h"

namespace adaptive_train::plugin {
namespace {

/// The kernel's overflow user and group, named nobody. They are not looked up by name: a hanging
/// name service would hold the job.
constexpr ProbeIdentity kNobody{65534, 65534};

/// The environment of the probe: nothing from slurmd or the user. The node's name comes from
/// slurm.conf.
std::vector<std::string> ProbeEnvironment(std::uint32_t job_id) {
  std::vector<std::string> environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C",
                                          "SLURM_SCRIPT_CONTEXT=prolog_slurmd",
                                          "SLURM_JOB_ID=" + std::to_string(job_id)};
  if (const char* node = std::getenv("SLURMD_NODENAME"))
    environment.push_back(std::string("SLURMD_NODENAME=") + node);
  return environment;
}

/// The job of this prolog or epilog. Logs an error and returns 0, which is no job, if Slurm does
/// not say.
std::uint32_t JobId(spank_t spank) {
  std::uint32_t job_id = 0;
  const spank_err_t error = spank_get_item(spank, S_JOB_ID, &job_id);
  if (error == ESPANK_SUCCESS) return job_id;
  slurm_error("adaptive-train: Slurm does not say which job this is: %s", spank_strerror(error));
  return 0;
}

JobOptions OptionsOf(std::uint32_t job_id, const std::string& text) {
  const auto options = ParseJobOptions(text);
  if (options) return *options;
  slurm_error("adaptive-train: job %u: --adaptive-train: %s; going by the defaults", job_id,
              options.error().message.c_str());
  return {};
}

/// What ranks that were killed have left in this node's shared memory.
void RemoveKeptState(spank_t spank, std::uint32_t job_id) {
  uid_t owner = 0;
  const spank_err_t error = spank_get_item(spank, S_JOB_UID, &owner);
  if (error != ESPANK_SUCCESS) {
    slurm_error("adaptive-train: job %u: Slurm does not say whose it is: %s", job_id,
                spank_strerror(error));
    return;
  }
  const char* node = std::getenv("SLURMD_NODENAME");
  const auto removed = RemoveKeptFolders(
      kKeptRoot, KeptFolderPrefix(owner, std::to_string(job_id), node == nullptr ? "" : node),
      owner);
  if (!removed) slurm_error("adaptive-train: job %u: %s", job_id, removed.error().message.c_str());
}

}  // namespace

int OnNodeInit(const ArgumentsResult& arguments) {
  for (const std::string& problem : arguments.problems)
    slurm_error("adaptive-train: %s", problem.c_str());
  const std::string& probe = arguments.arguments.probe;
  if (access(probe.c_str(), X_OK) != 0) {
    slurm_error("adaptive-train: probe %s: %s; jobs will run without snapshots", probe.c_str(),
                std::strerror(errno));
  }
  return 0;
}

int OnJobProlog(spank_t spank, const Arguments& arguments) {
  const auto text = OptionInJobScript(spank);
  if (!text) return 0;
  const std::uint32_t job_id = JobId(spank);
  if (job_id == 0) return 0;
  const JobOptions options = OptionsOf(job_id, *text);

  const auto begin = std::chrono::steady_clock::now();
  const ProbeOutcome outcome = RunProbe(
      {arguments.probe, arguments.deadline, kMaxSnapshotBytes, ProbeEnvironment(job_id), kNobody});
  std::string problem = outcome.problem;
  if (outcome.document.empty()) {
    problem += "; the job runs without a snapshot of this node";
  } else {
    if (!problem.empty()) problem += "; kept the part that it had told";
    if (const auto kept = WriteSnapshot(kSnapshotRoot, job_id, outcome.document + "\n"); !kept) {
      problem += (problem.empty() ? "" : "; ") + kept.error().message +
                 "; the job runs without a snapshot of this node";
    }
  }
  if (!problem.empty()) {
    slurm_error("adaptive-train: job %u: %s", job_id, problem.c_str());
  } else if (options.log == JobOptions::Log::kDebug) {
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    slurm_info("adaptive-train: job %u: snapshot of %zu bytes in %s after %d ms", job_id,
               outcome.document.size(), SnapshotPath(job_id).c_str(),
               static_cast<int>(spent.count()));
  }
  return 0;
}

int OnJobEpilog(spank_t spank) {
  if (!OptionInJobScript(spank)) return 0;
  const std::uint32_t job_id = JobId(spank);
  if (job_id == 0) return 0;
  if (const auto removed = RemoveSnapshot(kSnapshotRoot, job_id); !removed) {
    slurm_error("adaptive-train: job %u: %s", job_id, removed.error().message.c_str());
  }
  RemoveKeptState(spank, job_id);
  return 0;
}

}  // namespace adaptive_train::plugin
