// adaptive-train plan: what `run` would do, and why, without doing it.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds the verb; `chosen` becomes what it does.
void AddPlanCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
