#include "runtime/checkpoint/checkpoint_settings.h"

#include <fmt/format.h>

#include <string_view>

#include "core/file_io.h"

namespace adaptive_train {

CheckpointSettings TakeSettings(std::string& identity) {
  CheckpointSettings settings;
  for (const std::string name : {"train.seed", "train.global_batch"}) {
    const std::string words = ", " + name + " = ";
    const std::size_t begin = identity.rfind(words);
    if (begin == std::string::npos) continue;
    settings[name] = identity.substr(begin + words.size());
    identity.resize(begin);
  }
  return settings;
}

std::vector<SettingChange> ChangesOf(const CheckpointSettings& before,
                                     const CheckpointSettings& now) {
  std::vector<SettingChange> changes;
  for (const auto& [name, value] : now) {
    const auto then = before.find(name);
    if (then != before.end() && then->second != value)
      changes.push_back({name, then->second, value});
  }
  return changes;
}

std::string Describe(const SettingChange& change) {
  return fmt::format("{} = {}, was {}", change.name, change.now, Printable(change.before));
}

}  // namespace adaptive_train
