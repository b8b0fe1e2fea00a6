// adaptive-train nodes: shows what is known of a cluster's nodes, and which would be spares.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `nodes` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddNodesCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
