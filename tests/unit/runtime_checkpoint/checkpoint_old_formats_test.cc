// Checkpoints of formats 2 and 3, which listed the pieces of every shard, are read as they were.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "runtime/checkpoint/checkpoint_files.h"
#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_old_formats_test {
namespace {

using testing::HasSubstr;

/// Writes as the programs of these formats did.
class OldWriter {
 public:
  OldWriter(const std::string& folder, int version, std::int64_t step)
      : folder_(folder), version_(version), step_(step) {
    std::filesystem::create_directories(folder);
  }
  /// The next shard: these elements of the whole model's arenas.
  void AddShard(const OwnedRanges& owned, const SavedState& state) {
    std::string pieces;
    std::vector<float> values;
    for (std::size_t arena = 0; arena < (version_ < 3 ? kResiduals : kTrainingArenas); ++arena) {
      pieces += fmt::format("\"{}\":[{}],", kTrainingArenaNames[arena], PiecesOf(owned[arena]));
      for (const ElementRange& range : owned[arena])
        values.insert(values.end(), state.arenas[arena].begin() + range.begin,
                      state.arenas[arena].begin() + range.end);
    }
    const std::string stem = folder_ + "/" + ShardName(shards_.size());
    const auto bytes = std::as_bytes(std::span(values));
    const auto hashes = WriteBlocks(stem + ".bin", bytes, [] { return false; }).value();
    std::string texts;
    for (const std::uint64_t hash : hashes)
      texts += fmt::format("{}\"{:016x}\"", texts.empty() ? "" : ",", hash);
    const std::string index = fmt::format(
        R"({{"format_version":{},"step":{},{}"block_xxh3":[{}]}})", version_, step_, pieces, texts);
    std::ofstream(stem + ".json") << index;
    shards_.push_back({static_cast<std::int64_t>(bytes.size()), HashOf(index)});
  }
  void Seal() const {
    std::string text =
        ManifestText({StepOf(step_), ParametersOf(WholeLayout(kLargeDims)), shards_}).value();
    const std::string now = fmt::format("\"format_version\": {}", kCheckpointFormatVersion);
    text.replace(text.find(now), now.size(), fmt::format("\"format_version\": {}", version_));
    std::ofstream(folder_ + "/manifest.json") << text;
    std::ofstream(folder_ + "/DONE") << DoneText(text);
  }

 private:
  static std::string PiecesOf(const ElementRanges& ranges) {
    const ParameterLayout layout = WholeLayout(kLargeDims);
    std::string pieces;
    for (const ElementRange& range : ranges) {
      for (const ParameterRange& parameter : layout.ranges()) {
        const std::int64_t begin = std::max(range.begin, parameter.offset);
        const std::int64_t end = std::min(range.end, parameter.offset + parameter.count);
        if (begin < end)
          pieces += fmt::format("{}[\"{}\",{},{}]", pieces.empty() ? "" : ",", parameter.name,
                                begin - parameter.offset, end - parameter.offset);
      }
    }
    return pieces;
  }

  const std::string folder_;
  const int version_;
  const std::int64_t step_;
  std::vector<ManifestShard> shards_;
};

class OldFormatsTest : public CheckpointTest {
 protected:
  /// By three ranks that own the buckets of a rule; each has residuals of its own.
  void Write(int version, std::int64_t step) const {
    OldWriter writer(CheckpointFolder(path_).PathOf(step), version, step);
    const BucketRule rule{{layout_.size()}, 4096, 3};
    SavedState state(layout_, step);
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const ElementRanges owned = rule.OwnedBy(rank);
      state.arenas[kResiduals].assign(static_cast<std::size_t>(layout_.size()),
                                      static_cast<float>(1 + rank));
      writer.AddShard({owned, owned, owned, ElementRanges{{0, layout_.size()}}}, state);
    }
    writer.Seal();
  }
  const ParameterLayout layout_ = WholeLayout(kLargeDims);
};

TEST_F(OldFormatsTest, AreReadByAnyNumberOfRanks) {
  for (const int version : {2, 3}) {
    Write(version, version);
    EXPECT_EQ(Newest(kLargeDims).step, version);
    EXPECT_EQ(Check(version, kLargeDims), "whole");
    auto reader = CheckpointReader::Open(CheckpointFolder(path_).PathOf(version));
    SavedState read(layout_);
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const ElementRanges part{PartOf(layout_.size(), rank, 2)};
      ASSERT_TRUE(reader->Read({BlocksOf(layout_), part}, read.Spans()));
    }
    EXPECT_EQ(read.arenas, SavedState(layout_, version).arenas);
  }
}

TEST_F(OldFormatsTest, VersionTwoHasNoResidualsVersionThreeAddsThemUp) {
  for (const int version : {2, 3}) {
    Write(version, version);
    auto reader = CheckpointReader::Open(CheckpointFolder(path_).PathOf(version));
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->ResidualElements(), version == 2 ? 0 : 3 * layout_.size());
    std::vector<float> residuals(static_cast<std::size_t>(layout_.size()), 9.0F);
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(reader->Read({BlocksOf(layout_), {}, rank, 2}, Only(kResiduals, residuals)));
      // Rank 0 takes those of the first shard and the third.
      EXPECT_THAT(residuals, testing::Each(version == 2 ? 0.0F : rank == 0 ? 4.0F : 2.0F));
    }
  }
}

TEST_F(OldFormatsTest, ThatDoNotHoldAreRefused) {
  OldWriter writer(CheckpointFolder(path_).PathOf(1), 3, 1);
  const SavedState state(layout_, 1);
  const ElementRanges all{{0, layout_.size()}}, part{{0, 100}};
  writer.AddShard({all, all, part, {}}, state);
  writer.Seal();
  const NewestCheckpoint newest = Newest(kLargeDims);
  ASSERT_EQ(newest.refused.size(), 1U);
  EXPECT_THAT(newest.refused[0], HasSubstr("second_moments of wte.weight: 120560 of 120660 "
                                           "elements are in no shard"));
}

TEST_F(OldFormatsTest, AShardOfAnotherFormatIsRefused) {
  ASSERT_EQ(Save(1, {.ranks = 1}, kLargeDims), "saved");
  const std::string folder = CheckpointFolder(path_).PathOf(1);
  OldWriter writer(folder + ".old", 3, 1);
  writer.AddShard({}, SavedState(layout_, 1));
  auto text = ReadCheckpointText(folder + "/manifest.json").value();
  auto manifest = ParseManifest(text, "manifest").value();
  text = ReadCheckpointText(folder + ".old/shard-00000.json").value();
  for (const char* extension : {".bin", ".json"})
    std::filesystem::copy_file(folder + ".old/shard-00000" + extension,
                               folder + "/shard-00001" + extension);
  manifest.shards.push_back({0, HashOf(text)});
  text = ManifestText(manifest).value();
  std::ofstream(folder + "/manifest.json") << text;
  std::ofstream(folder + "/DONE") << DoneText(text);
  EXPECT_EQ(Check(1, kLargeDims), folder + ": shard-00001: of another format than shard-00000");
}

}  // namespace
}  // namespace adaptive_train::checkpoint_old_formats_test
