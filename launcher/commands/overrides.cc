#include "launcher/commands/overrides.h"

#include <fmt/format.h>

#include "core/file_io.h"

namespace adaptive_train {

Result<std::vector<ConfigOverride>> ParseOverrides(const std::vector<std::string>& extras) {
  std::vector<ConfigOverride> overrides;
  for (std::size_t i = 0; i < extras.size(); ++i) {
    const std::string& text = extras[i];
    if (text.rfind("--", 0) != 0 || text.find('.') == std::string::npos) {
      return Fail(fmt::format("unexpected argument {}; overrides look like --train.steps=20",
                              Printable(text, 80)));
    }
    const auto equals = text.find('=');
    if (equals != std::string::npos) {
      overrides.emplace_back(text.substr(2, equals - 2), text.substr(equals + 1));
    } else if (i + 1 < extras.size()) {
      overrides.emplace_back(text.substr(2), extras[++i]);
    } else {
      return Fail(fmt::format("{} needs a value", Printable(text, 80)));
    }
  }
  return overrides;
}

}  // namespace adaptive_train
