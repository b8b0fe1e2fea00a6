// adaptive-train eval: a saved model's loss and perplexity on a text.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace adaptive_train {

/// Adds `eval` to `app`. When parsed, `chosen` becomes the function that runs it and returns the
/// exit code.
void AddEvalCommand(CLI::App& app, std::function<int()>& chosen);

}  // namespace adaptive_train
