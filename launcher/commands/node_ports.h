// `adaptive-train node-ports`: what doctor starts on each node of a job. Not for people.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

void AddNodePortsCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
