// Everything the launcher asks of Slurm's commands; the only room that knows srun, scontrol and
// scancel.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "launcher/steps/job_step.h"

namespace adaptive_train {

/// The host names of a Slurm node list, in order. Runs scontrol.
Result<std::vector<std::string>> ExpandHosts(const std::string& node_list);

/// When the job was submitted, seconds since 1970. Runs scontrol.
Result<double> SubmitTime(std::int64_t job_id);

/// Whether Slurm's controller answers within `deadline`. Blocks for as long at most. Runs scontrol.
bool ControllerAnswers(std::int64_t job_id, std::chrono::seconds deadline);

/// The time in field `name` of what `scontrol show job -o` has printed, seconds since 1970; none where
/// it has no time there ("Unknown").
std::optional<double> TimeOfJob(const std::string& shown, const std::string& name);

/// "slurm 22.05.8", as srun says; none where there is no srun. Fails where srun does, as without a
/// configuration. Runs it.
Result<std::optional<std::string>> SlurmVersion();

/// What scontrol prints; empty where it fails three times, as from a node that is cut off. Blocks for
/// 20 s at most each time.
std::string ShownBySlurm(const std::vector<std::string>& arguments);

/// What `scontrol show config` says, by key. Fails if Slurm's controller does not answer.
/// Blocks as ShownBySlurm does.
Result<std::map<std::string, std::string>> SlurmSettings();
/// The same from its text: lines "Key   = value".
std::map<std::string, std::string> ParseSlurmSettings(const std::string& text);

/// Runs `command` once on each of the allocation's `hosts` hosts, in one short step, and gives back its
/// standard output: lines "TASK: text" with tasks numbered from 0 in no particular order. Fails
/// with kPreflight if a host does not run it within `deadline`. Where srun itself fails the step is made
/// again, twice at most, and where it hangs once, each time with the whole deadline.
Result<std::string> RunOnEveryHost(std::size_t hosts, const std::vector<std::string>& command,
                                   std::chrono::milliseconds deadline);

struct ShortStep {
  std::string output;
  double seconds;  // of the try that succeeded
};
/// The same, with its time.
Result<ShortStep> TimeOnEveryHost(std::size_t hosts, const std::vector<std::string>& command,
                                  std::chrono::milliseconds deadline);

/// Fails with kPreflight unless srun has the plugin by which ranks find each other (launch.mpi).
/// Runs srun.
Result<void> CheckPmixPlugin(const std::string& plugin);
/// Whether the output of `srun --mpi=list` names the plugin.
bool NamesPlugin(const std::string& list, const std::string& plugin);

/// The node that a line of srun or slurmstepd is about; empty if it names none that we know to find.
std::string NodeOfError(const std::string& line);

/// The kind of failure behind srun's words about a task's end: "Killed", "Out Of Memory", "Exited
/// with exit code 3".
FailureKind KindOfSrunsWords(const std::string& how);

/// Without srun's own variables that an outer sbatch, salloc or srun has set and that would bend
/// the shape we ask for.
Environment WithoutInheritedShape(Environment environment);

}  // namespace adaptive_train
