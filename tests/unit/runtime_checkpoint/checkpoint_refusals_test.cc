// Checkpoints that do not hold: refused by name, the one before is used, nothing is deleted.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_refusals_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Step 1 and step 2, each of two shards; tests do something to step 2.
class RefusalsTest : public CheckpointTest {
 protected:
  void SetUp() override {
    for (const std::int64_t step : {1, 2}) ASSERT_EQ(Save(step, {.ranks = 2}), "saved");
  }
  std::string Of(const std::string& name) const { return path_ + "/step-00000002/" + name; }
  static std::string Text(const std::string& path) { return ReadFile(path, 1 << 20).value(); }
  static void Put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  /// The one refusal, after which step 1 is used and all files are as they were.
  std::string Refusal() const {
    const auto before = Entries();
    const NewestCheckpoint newest = Newest();
    EXPECT_EQ(newest.step, 1);
    EXPECT_EQ(Entries(), before);
    EXPECT_EQ(Check(1), "whole");
    EXPECT_EQ(newest.refused_steps, std::set<std::int64_t>{2});
    return newest.refused.size() == 1 ? newest.refused[0] : "not one refusal";
  }
  /// Writes manifest and DONE anew for shard indices that were changed.
  void Reseal(const std::vector<std::string>& index_texts) const {
    auto manifest = ParseManifest(Text(Of("manifest.json")), "manifest");
    ASSERT_TRUE(manifest);
    for (std::size_t shard = 0; shard < index_texts.size(); ++shard) {
      Put(Of(ShardName(shard) + ".json"), index_texts[shard]);
      manifest->shards[shard].index_hash = HashOf(index_texts[shard]);
    }
    SealManifest(*ManifestText(*manifest));
  }
  void SealManifest(const std::string& text) const {
    Put(Of("manifest.json"), text);
    Put(Of("DONE"), DoneText(text));
  }
  ShardIndex Index(std::size_t shard) const {
    return ParseIndex(Text(Of(ShardName(shard) + ".json")), "index").value();
  }
};

TEST_F(RefusalsTest, AFlippedBitAnywhereInTheTexts) {
  for (const std::string name : {"DONE", "manifest.json", "shard-00000.json", "shard-00001.json"}) {
    const std::string text = Text(Of(name));
    for (std::size_t at = 0; at < text.size(); at += 1 + text.size() / 200) {
      std::string flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      Put(Of(name), flipped);
      ASSERT_THAT(Refusal(), HasSubstr("step-00000002")) << name << " byte " << at;
    }
    Put(Of(name), text);
  }
  EXPECT_EQ(Newest().step, 2);
}

TEST_F(RefusalsTest, AFlippedBitInEachRegionOfAShard) {
  for (const std::string name : {"shard-00000.bin", "shard-00001.bin"}) {
    const std::string bytes = Text(Of(name));
    std::vector<std::size_t> places = {0, 1, bytes.size() / 2, bytes.size() - 1};
    for (std::size_t at = 3; at < bytes.size(); at += 997) places.push_back(at);
    for (const std::size_t at : places) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      Put(Of(name), flipped);
      ASSERT_THAT(Refusal(), AllOf(HasSubstr(Of(name)), HasSubstr("do not fit their hash")));
      EXPECT_NE(Check(2), "whole");
    }
    Put(Of(name), bytes);
  }
  EXPECT_EQ(Newest().step, 2);
}

TEST_F(RefusalsTest, TruncatedFiles) {
  const auto size = fs::file_size(Of("shard-00001.bin"));
  fs::resize_file(Of("shard-00001.bin"), size - 4);
  EXPECT_EQ(Refusal(), Of("shard-00001.bin") + ": " + std::to_string(size - 4) +
                           " bytes, the manifest says " + std::to_string(size));
  fs::resize_file(Of("shard-00001.bin"), 0);
  EXPECT_THAT(Refusal(), HasSubstr("shard-00001.bin: 0 bytes"));
  fs::resize_file(Of("shard-00001.bin"), size + 1);
  EXPECT_THAT(Refusal(), HasSubstr("shard-00001.bin"));
  fs::resize_file(Of("shard-00000.json"), 100);
  EXPECT_THAT(Refusal(), HasSubstr("shard-00000.json: does not fit the hash"));
  fs::resize_file(Of("manifest.json"), 0);
  EXPECT_THAT(Refusal(), HasSubstr("manifest.json"));
}

TEST_F(RefusalsTest, MissingFiles) {
  for (const std::string name : {"shard-00000.bin", "shard-00001.json", "manifest.json"}) {
    const std::string bytes = Text(Of(name));
    fs::remove(Of(name));
    EXPECT_EQ(Refusal(), Of(name) + ": No such file or directory");
    Put(Of(name), bytes);
  }
  fs::remove(Of("DONE"));
  const NewestCheckpoint newest = Newest();
  EXPECT_EQ(newest.step, 1);
  EXPECT_THAT(newest.refused, ElementsAre());
  EXPECT_THAT(newest.unfinished, ElementsAre(path_ + "/step-00000002: has no DONE, is not used"));
}

TEST_F(RefusalsTest, AnotherModel) {
  ModelDims other = kSmallDims;
  other.hidden = 16;
  const NewestCheckpoint newest = Newest(other);
  EXPECT_FALSE(newest.step);
  ASSERT_EQ(newest.refused.size(), 2U);
  EXPECT_EQ(newest.refused[0], path_ +
                                   "/step-00000002: holds another model's parameters: wte.weight "
                                   "[256, 8] where this run has wte.weight [256, 16]");
  CheckpointOwner owner = OwnerOf(kSmallDims);
  owner.identity = "model.heads = 4";
  const auto refused = CheckpointFolder(path_).NewestValid(JudgeOf(owner))->refused;
  ASSERT_EQ(refused.size(), 2U);
  EXPECT_THAT(refused[0], HasSubstr("was made with \"model.heads = 2\", this run has"));
}

TEST_F(RefusalsTest, OtherVersionsAndGarbage) {
  const std::string manifest = Text(Of("manifest.json"));
  SealManifest("{\"format_version\": 5}");
  EXPECT_EQ(Refusal(),
            Of("manifest.json") + ": format_version 5 is not one that this program reads (2 to 4)");
  // What the first version left: one state.bin, an empty DONE.
  // Deeper than a stack is: refused, not fallen over.
  SealManifest("{\"format_version\": " + std::string(300000, '[') + std::string(300000, ']') + "}");
  EXPECT_THAT(Refusal(), HasSubstr("format_version an array is not one"));
  Put(Of("manifest.json"), "{\"format_version\": 1, \"step\": 2}");
  Put(Of("DONE"), "");
  EXPECT_THAT(Refusal(), HasSubstr("format_version 1 is not"));
  SealManifest("garbage");
  EXPECT_THAT(Refusal(), HasSubstr("manifest.json"));
  SealManifest("[]");
  EXPECT_THAT(Refusal(), HasSubstr("not a JSON object"));
}

TEST_F(RefusalsTest, AFolderWithAnotherStepsName) {
  fs::rename(path_ + "/step-00000002", path_ + "/step-00000007");
  const NewestCheckpoint newest = Newest();
  EXPECT_EQ(newest.step, 1);
  EXPECT_THAT(newest.refused, ElementsAre(path_ + "/step-00000007: is in truth of step 2"));
}

TEST_F(RefusalsTest, AShardOfAnotherStep) {
  for (const char* extension : {".bin", ".json"})
    fs::copy_file(path_ + "/step-00000001/shard-00001" + extension,
                  Of(std::string("shard-00001") + extension), fs::copy_options::overwrite_existing);
  EXPECT_THAT(Refusal(), HasSubstr("shard-00001.json: does not fit the hash in manifest.json"));
  Reseal({IndexText(Index(0)), IndexText(Index(1))});
  EXPECT_EQ(Refusal(), Of("shard-00001.json") + ": is of step 1, manifest.json of step 2");
}

TEST_F(RefusalsTest, ShardsThatDoNotFitTogether) {
  const ShardIndex first = Index(0), second = Index(1);
  ShardIndex changed = second;
  changed.place = 0;
  Reseal({IndexText(first), IndexText(changed)});
  EXPECT_EQ(Refusal(), path_ +
                           "/step-00000002: shard-00000 and shard-00001 are both place 0 of "
                           "shard-00000's arena");
  changed = first;
  changed.arena->blocks.back().name = "other";
  Reseal({IndexText(changed), IndexText(second)});
  EXPECT_EQ(Refusal(),
            path_ + "/step-00000002: shard-00000: \"other\" is not a parameter of the model");
  changed.arena->blocks.back() = changed.arena->blocks[1];
  changed.arena->rule.part_ends = {first.arena->rule.size() - 8 + 4 * 8};
  Reseal({IndexText(changed), IndexText(second)});
  EXPECT_THAT(Refusal(), HasSubstr("are in shard-00000 and again in shard-00000"));
}

TEST_F(RefusalsTest, WhatIsNoFile) {
  fs::rename(Of("shard-00000.bin"), Of("elsewhere"));
  fs::create_symlink("elsewhere", Of("shard-00000.bin"));
  EXPECT_EQ(Refusal(), Of("shard-00000.bin") + ": not a regular file");
  fs::remove(Of("shard-00000.bin"));
  ASSERT_EQ(::mkfifo(Of("shard-00000.bin").c_str(), 0600), 0);
  EXPECT_EQ(Refusal(), Of("shard-00000.bin") + ": not a regular file");
  fs::remove(Of("manifest.json"));
  ASSERT_EQ(::mkfifo(Of("manifest.json").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("manifest.json: not a regular file"));
}

TEST_F(RefusalsTest, ALinkToACheckpointIsReadAndNeverRemoved) {
  fs::rename(path_ + "/step-00000002", path_ + "/best");
  fs::create_directory_symlink("best", path_ + "/step-00000002");
  EXPECT_EQ(Newest().step, 2);
  EXPECT_EQ(Check(2), "whole");
  for (const std::int64_t step : {3, 4}) ASSERT_EQ(Save(step, {.keep = 1}), "saved");
  EXPECT_THAT(Entries(), ElementsAre("best", "step-00000002", "step-00000004"));
  EXPECT_EQ(Check(2), "whole");
}

TEST_F(RefusalsTest, GoingOnAfterARefusalSetsItAside) {
  fs::resize_file(Of("shard-00000.bin"), 3);
  const std::set<std::int64_t> refused = Newest().refused_steps;
  ASSERT_EQ(Save(2, {.keep = 2, .refused = refused}), "saved");
  EXPECT_EQ(Check(2), "whole");
  EXPECT_THAT(Entries(), ElementsAre("step-00000001", "step-00000002", "step-00000002.aside-0"));
  EXPECT_EQ(fs::file_size(path_ + "/step-00000002.aside-0/shard-00000.bin"), 3U);
}

/// Refused checkpoints neither count nor go: the one resumed from must not be displaced by them.
TEST_F(RefusalsTest, PruningKeepsWhatWasRefusedAndWhatIsNotOurs) {
  fs::resize_file(Of("shard-00000.bin"), 3);
  fs::create_directory(path_ + "/step-00000000");
  Put(path_ + "/step-00000000/DONE", "somebody's");
  fs::create_directory(path_ + "/notes");
  ASSERT_EQ(Save(3, {.keep = 2, .refused = Newest().refused_steps}), "saved");
  EXPECT_THAT(Entries(), ElementsAre("notes", "step-00000000", "step-00000001", "step-00000002",
                                     "step-00000003"));
  ASSERT_EQ(Save(4, {.keep = 2, .refused = {2}}), "saved");
  EXPECT_THAT(Entries(), ElementsAre("notes", "step-00000000", "step-00000002", "step-00000003",
                                     "step-00000004"));
}

TEST_F(RefusalsTest, AnEarlierStepNeverRemovesLaterOnes) {
  fs::resize_file(Of("shard-00000.bin"), 3);
  ASSERT_EQ(Save(1, {.keep = 1}), "saved");  // as after going back further
  EXPECT_THAT(Entries(), ElementsAre("step-00000001", "step-00000001.aside-0", "step-00000002"));
}

}  // namespace
}  // namespace adaptive_train::checkpoint_refusals_test
