// adaptive-train run: plans and trains.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `run` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddRunCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
