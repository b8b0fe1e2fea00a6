// examples/quickstart.toml, compiled in.
#pragma once

#include <string_view>

namespace adaptive_train {

/// The whole text: every key of a configuration with its type, unit and default.
std::string_view EveryKeyToml();

}  // namespace adaptive_train
