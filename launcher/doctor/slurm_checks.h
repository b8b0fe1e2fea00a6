// What doctor looks at of Slurm: its controller, srun's PMIx, our plugin.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/finding.h"

namespace adaptive_train {

/// The plugin of `plugstack` (a path) for the Slurm of `slurm_version` ("slurm 22.05.8"). Relative
/// names are looked for in `plugin_dir`.
Finding CheckPlugin(const std::string& plugstack, const std::string& plugin_dir,
                    const std::string& slurm_version);

/// UnkillableStepTimeout and PrologFlags, as `scontrol show config` prints them.
Finding CheckUnkillableTimeout(const std::string& seconds);
Finding CheckPrologFlags(const std::string& flags);

/// All of Slurm's; `mpi` is launch.mpi. Runs srun and scontrol, for a minute at most; without srun one
/// note.
std::vector<Finding> CheckSlurm(const std::string& mpi);

}  // namespace adaptive_train
