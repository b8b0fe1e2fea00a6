// The plugin's actions in each of Slurm's processes. plugin.cc calls these and keeps their
// exceptions from Slurm.
#pragma once

#include "spank_plugin/arguments.h"
#include "spank_plugin/slurm_spank.h"

namespace adaptive_train::plugin {

// on_submit.cc: in sbatch, salloc and srun, as the user. Registers and checks the option, and
// passes it to the job.
int OnSubmitInit(spank_t spank);
int OnSubmitPostOptions();
/// Checks the value of one --adaptive-train; non-zero refuses the submission.
int OnSubmitOption(const char* text);

// on_node.cc: in slurmd and in its prolog and epilog processes, as root. Never fails a job: always
// 0.
int OnNodeInit(const ArgumentsResult& arguments);
int OnJobProlog(spank_t spank, const Arguments& arguments);
int OnJobEpilog(spank_t spank);

// on_task.cc: in slurmstepd, as root, once for each step. Never fails a step: always 0.
int OnTaskInit(spank_t spank);
int OnTaskPostOptions(spank_t spank);
/// Records the option of a step. An unreadable value counts as not given.
int OnTaskOption(const char* text);

}  // namespace adaptive_train::plugin
