// Finds --adaptive-train on the command line of sbatch or salloc, before Slurm reads it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace adaptive_train::plugin {

/// Whether --adaptive-train stands among the options, which end at the script or command.
/// `arguments` are without the program. Slurm's options that take the next word are known by name;
/// after one that is not known the search may end too early, never too late.
bool AsksForAdaptiveTrain(std::span<const std::string> arguments);

/// This process's arguments without the program; empty if they cannot be read.
std::vector<std::string> OwnArguments();

}  // namespace adaptive_train::plugin
