// adaptive-train probe shows what the probe sees on this node. node-check and local-step are
// started by the launcher, requeue-lost by a rank.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `probe` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddProbeCommand(CLI::App& app, std::function<int()>& chosen);

/// Adds `node-check`, which `run` starts on every node. Its JSON is for the launcher alone.
void AddNodeCheckCommand(CLI::App& app, std::function<int()>& chosen);

/// Adds `requeue-lost`, which a rank becomes that has lost its launcher.
void AddRequeueLostCommand(CLI::App& app, std::function<int()>& chosen);

/// Adds `local-step`, which `run` starts without Slurm.
void AddLocalStepCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
