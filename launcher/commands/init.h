// adaptive-train init: writes a configuration with every key, its type, unit and default.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `init` to `app`. When parsed, `chosen` becomes the function that runs it.
void AddInitCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
