// adaptive-train jobs: lists what the profile store knows of past and running jobs, with sacct's
// habits.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds the `jobs` subcommand to `app`. When the command line is parsed and names it, `chosen`
/// becomes the function that runs it: it prints the table to standard output, or one line to
/// standard error, and returns the exit code (0, 2 usage, 6 store). `chosen` must outlive the
/// parsing of `app`.
void AddJobsCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
