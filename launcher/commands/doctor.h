// adaptive-train doctor: what is wrong here, why it matters, and what mends it.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `doctor` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddDoctorCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
