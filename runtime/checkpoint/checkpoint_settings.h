// What a run was made with, as its checkpoints remember it, and how it differs from what it is now.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace adaptive_train {

/// Values in words by the name of the configuration's key.
using CheckpointSettings = std::map<std::string, std::string>;

/// Earlier programs kept global batch and seed in the identity: takes these words out of it.
CheckpointSettings TakeSettings(std::string& identity);

struct SettingChange {
  std::string name;
  std::string before;
  std::string now;
};

/// Settings that both have, with other values, by their names. What only one has, as an earlier
/// program wrote fewer, is not known to differ.
std::vector<SettingChange> ChangesOf(const CheckpointSettings& before,
                                     const CheckpointSettings& now);

/// "train.seed = 5, was 4".
std::string Describe(const SettingChange& change);

}  // namespace adaptive_train
