// adaptive-train import: a model of Hugging Face's transformers as a checkpoint to start from.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `import` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddImportCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
