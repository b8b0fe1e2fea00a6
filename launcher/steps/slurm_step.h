// Everything the launcher asks of Slurm's commands; the only room that knows srun, scontrol and
// scancel.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "launcher/steps/job_step.h"

namespace adaptive_train {

/// The host names of a Slurm node list, in order. Runs scontrol.
Result<std::vector<std::string>> ExpandHosts(const std::string& node_list);

/// When the job was submitted, seconds since 1970. Runs scontrol.
Result<double> SubmitTime(std::int64_t job_id);

/// Runs `command` once on each of the allocation's `hosts` hosts, in one short step, and gives back its
/// standard output: lines "TASK: text" with tasks numbered from 0 in no particular order. Fails
/// with kPreflight if a host does not run it in time.
Result<std::string> RunOnEveryHost(std::size_t hosts, const std::vector<std::string>& command);

}  // namespace adaptive_train
