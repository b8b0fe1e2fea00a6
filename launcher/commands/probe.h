// adaptive-train probe: shows what the probe sees on this node. node-check: what the launcher runs
// on every node.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `probe` to `app`; when parsed, `chosen` becomes the function that runs it and gives the
/// exit code.
void AddProbeCommand(CLI::App& app, std::function<int()>& chosen);

/// Adds `node-check`, which `run` starts on every node; its JSON is for the launcher alone.
void AddNodeCheckCommand(CLI::App& app, std::function<int()>& chosen);

/// Adds `local-step`, which `run` starts where there is no Slurm.
void AddLocalStepCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
