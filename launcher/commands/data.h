// adaptive-train data: turns text into training data, and shows what a data set holds.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `data` with its `build` and `show` to `app`. When parsed, `chosen` becomes the function
/// that runs the verb and returns the exit code: 0, 2 wrong usage or input, 130 or 143 stopped.
void AddDataCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
