// adaptive-train plan: shows what `run` would do, and why, without doing it.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `plan` to `app`. When parsed, `chosen` becomes the function that runs it.
void AddPlanCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
