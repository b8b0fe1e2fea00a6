// adaptive-train export: a trained model in the format of Hugging Face's transformers.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `export` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddExportCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
