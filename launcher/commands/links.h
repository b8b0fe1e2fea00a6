// adaptive-train links: shows the links between nodes as a table and a picture, and measures them
// in a job.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `links` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddLinksCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
