// adaptive-train jobs: lists past and running jobs from the profile store, following sacct's
// conventions.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `jobs` to `app`. When parsed, `chosen` becomes the function that prints the table to
/// standard output, or one line to standard error. It returns the exit code: 0, 2 usage, 6 store.
/// `chosen` must outlive the parsing of `app`.
void AddJobsCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
