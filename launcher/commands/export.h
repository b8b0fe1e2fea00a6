// adaptive-train export: a trained model as Hugging Face's transformers reads it.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `export` to `app`; when parsed, `chosen` becomes the function that runs it and gives the
/// exit code.
void AddExportCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
