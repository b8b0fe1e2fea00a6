// adaptive-train links: what is known of the links between nodes, as a table and a picture;
// measures them in a job.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds the verb to `app`; when it was typed, `chosen` becomes what runs it and gives the exit
/// code.
void AddLinksCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
