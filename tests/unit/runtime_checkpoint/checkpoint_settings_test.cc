// What checkpoints remember of a run, also those of programs that remembered less.
#include "runtime/checkpoint/checkpoint_settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train::checkpoint_settings_test {
namespace {

CheckpointManifest Manifest() {
  CheckpointManifest manifest;
  manifest.at.step = manifest.at.updates = 5;
  manifest.at.identity = "model.heads = 2, model.sequence = 8";
  manifest.at.settings = {{"train.seed", "1337"}, {"train.global_batch", "16"}};
  return manifest;
}

TEST(CheckpointSettings, ComeBackFromTheManifest) {
  const auto back = ParseManifest(ManifestText(Manifest()).value(), "manifest");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->at.identity, Manifest().at.identity);
  EXPECT_EQ(back->at.settings, Manifest().at.settings);
}

TEST(CheckpointSettings, OfEarlierProgramsAreInTheIdentity) {
  auto json = nlohmann::json::parse(ManifestText(Manifest()).value());
  json.erase("settings");
  json["identity"] =
      "model.heads = 2, model.sequence = 8, train.global_batch = 16, train.seed = 1337";
  for (const int version : {2, 3}) {
    json["format_version"] = version;
    const auto back = ParseManifest(json.dump(), "manifest");
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->at.identity, Manifest().at.identity);
    EXPECT_EQ(back->at.settings, Manifest().at.settings);
  }
}

TEST(CheckpointSettings, DifferOnlyWhereBothAreKnown) {
  const auto changes = ChangesOf({{"train.seed", "4"}, {"optimizer.lr", "1"}, {"gone", "x"}},
                                 {{"train.seed", "5"}, {"optimizer.lr", "1"}, {"new", "y"}});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(Describe(changes[0]), "train.seed = 5, was 4");
}

TEST(CheckpointSettings, ACutManifestIsRefusedInOurWords) {
  const std::string text = ManifestText(Manifest()).value();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, text.size() / 2}) {
    const auto read = ParseManifest(text.substr(0, size), "manifest.json");
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message.find("manifest.json: not JSON: parse error"), 0u)
        << read.error().message;
  }
}

}  // namespace
}  // namespace adaptive_train::checkpoint_settings_test
