// adaptive-train init: writes a configuration with every key, its type, unit and default.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds the verb; `chosen` is set to what it does once it was typed.
void AddInitCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
