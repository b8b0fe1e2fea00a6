// Stages of tensor ranks, sharded by the rule of buckets: what any layout wrote, any other reads.
#include <gmock/gmock.h>

#include <iostream>

#include "core/file_io.h"
#include "runtime/checkpoint/checkpoint_coverage.h"
#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_strided_test {
namespace {

/// data x tensor x pipeline ranks.
struct Layout {
  std::int64_t data, tensor, pipeline;
};
constexpr Layout kLayouts[] = {{1, 1, 1}, {3, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 1, 2}, {2, 2, 2}};

const ModelDims kDims{.layers = 3, .heads = 2, .hidden = 60, .sequence = 7, .vocab = 2011};

/// Tensor rank `t` of `tensor` has as many columns of each of so many equal parts, such as those of
/// queries, keys and values.
ElementRanges ColumnsOf(std::int64_t columns, std::int64_t parts, std::int64_t t,
                        std::int64_t tensor) {
  ElementRanges ranges;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = columns / parts * part, width = columns / parts;
    ranges.push_back(
        {begin + FractionOf(width, t, tensor), begin + FractionOf(width, t + 1, tensor)});
  }
  return ranges;
}

/// What a tensor rank of a stage holds: products split by columns, then by rows, the vocabulary by
/// rows, the rest in copies.
std::vector<ParameterBlock> BlocksOf(const ParameterLayout& stage, std::int64_t t,
                                     std::int64_t tensor) {
  std::vector<ParameterBlock> blocks = adaptive_train::BlocksOf(stage);
  if (tensor == 1) return blocks;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string& name = blocks[i].name;
    const std::vector<std::int64_t>& shape = stage.ranges()[i].shape;
    const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
    if (has("c_attn") || has("c_fc")) {
      blocks[i].columns = ColumnsOf(shape.back(), has("c_attn") ? 3 : 1, t, tensor);
    } else if (has("c_proj.weight") || has("wte") || has("lm_head")) {
      blocks[i].rows = {FractionOf(shape[0], t, tensor), FractionOf(shape[0], t + 1, tensor)};
    } else {
      blocks[i].copy |= t > 0;
    }
  }
  return blocks;
}

/// [pipeline x tensor] arenas, in the order of the ranks.
std::vector<std::vector<ParameterBlock>> ArenasOf(const ModelDims& dims, const Layout& layout) {
  std::vector<std::vector<ParameterBlock>> arenas;
  for (std::int64_t stage = 0; stage < layout.pipeline; ++stage) {
    const auto edge = [&](std::int64_t i) { return FractionOf(dims.layers, i, layout.pipeline); };
    const StageSlice slice{edge(stage), edge(stage + 1), stage == 0, stage + 1 == layout.pipeline};
    for (std::int64_t t = 0; t < layout.tensor; ++t)
      arenas.push_back(BlocksOf(ParameterLayout(dims, slice), t, layout.tensor));
  }
  return arenas;
}

class StridedTest : public CheckpointTest {
 protected:
  ArenaMap MapOf(const std::vector<ParameterBlock>& blocks) const {
    return ArenaMap::Of(ModelPlaces(parameters_), blocks).value();
  }
  /// One replica's ranks after the other's. Each arena's ranks share it out by buckets, so that
  /// parts end anywhere. All residuals of a replica are its number, from 1.
  std::string SaveBy(const Layout& layout, std::int64_t step, bool residuals = false) const {
    SavingRanks ranks;
    std::vector<SavedState> states;
    const auto arenas = ArenasOf(kDims, layout);
    const auto count = static_cast<std::int64_t>(arenas.size());
    const SavingRanks::Options options{.ranks = count * layout.data};
    for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
      const std::int64_t replica = rank / count, arena = rank % count;
      const auto& blocks = arenas[static_cast<std::size_t>(arena)];
      const ArenaMap map = MapOf(blocks);
      const BucketRule rule{{map.size() / 3, map.size()}, 5000, layout.data};
      // Owners are in another order than ranks.
      const std::int64_t place = layout.data - 1 - replica;
      ranks.Add(path_, kDims, options, {blocks, rule}, {arena, place}, residuals);
      SavedState& state = states.emplace_back(map, step);
      if (residuals)
        state.arenas[kResiduals].assign(static_cast<std::size_t>(map.size()),
                                        static_cast<float>(1 + replica));
    }
    for (std::size_t rank = 0; rank < states.size(); ++rank)
      if (!ranks.writers[rank]->Begin(StepOf(step), states[rank].ConstSpans()))
        return "Begin refused";
    return ranks.Finish();
  }
  /// Every rank of the layout reads its part of its arena, and the parts make the whole state.
  void ExpectReadBy(const Layout& layout, std::int64_t step) const {
    auto reader = CheckpointFolder(path_).Open(step, OwnerOf(kDims));
    ASSERT_TRUE(reader) << reader.error().message;
    for (const auto& blocks : ArenasOf(kDims, layout)) {
      const ArenaMap map = MapOf(blocks);
      const BucketRule rule{{map.size()}, 7000, layout.data};
      SavedState read(map, 0);
      for (std::int64_t place = 0; place < layout.data; ++place) {
        auto done = reader->Read({blocks, rule.OwnedBy(place)}, read.Spans());
        ASSERT_TRUE(done) << done.error().message;
      }
      EXPECT_EQ(read.arenas, SavedState(map, step).arenas);
    }
  }

  const std::vector<CheckpointParameter> parameters_ = ParametersOf(WholeLayout(kDims));
};

TEST_F(StridedTest, AnyLayoutReadsWhatAnyOtherWrote) {
  std::int64_t step = 0;
  for (const Layout& writers : kLayouts) {
    ASSERT_EQ(SaveBy(writers, ++step), "saved");
    EXPECT_TRUE(CheckpointFolder(path_).Open(step, OwnerOf(kDims))->Verify());
    for (const Layout& readers : kLayouts) {
      SCOPED_TRACE(testing::Message()
                   << writers.data << "x" << writers.tensor << "x" << writers.pipeline << " to "
                   << readers.data << "x" << readers.tensor << "x" << readers.pipeline);
      ExpectReadBy(readers, step);
    }
  }
}

TEST_F(StridedTest, AWeightSplitByColumnsOrRowsIsOnePieceAndReadWhole) {
  ASSERT_EQ(SaveBy({1, 2, 1}, 8), "saved");
  const std::string folder = CheckpointFolder(path_).PathOf(8);
  const std::string text = ReadFile(folder + "/shard-00001.json", 1 << 20).value();
  const auto blocks = ParseIndex(text, "index")->arena->blocks;
  EXPECT_EQ(blocks.size(), parameters_.size()) << "as many blocks as parameters";
  const auto block = [&](const std::string& name) {
    return *std::find_if(blocks.begin(), blocks.end(),
                         [&](const ParameterBlock& b) { return b.name == name; });
  };
  EXPECT_EQ(block("h.1.mlp.c_fc.weight").columns, (ElementRanges{{120, 240}}));
  EXPECT_EQ(block("h.1.attn.c_attn.weight").columns,
            (ElementRanges{{30, 60}, {90, 120}, {150, 180}}));
  EXPECT_EQ(block("h.1.mlp.c_proj.weight").rows, (ElementRange{120, 240}));
  auto reader = CheckpointReader::Open(folder);
  ASSERT_TRUE(reader) << reader.error().message;
  for (const char* name : {"h.1.mlp.c_fc.weight", "h.1.attn.c_attn.weight", "h.1.mlp.c_proj.weight",
                           "h.1.attn.c_attn.bias", "h.1.mlp.c_proj.bias", "wte.weight"}) {
    const ArenaMap map = MapOf({{name}});
    SavedState read(map, 0);
    ASSERT_TRUE(reader->Read({{{name}}, {{0, map.size()}}}, read.Spans()));
    EXPECT_EQ(read.arenas, SavedState(map, 8).arenas) << name;
  }
}

/// Each of two replicas has its own back, and one replica has the sum. What several arenas of a
/// replica hold, as tensor ranks do, counts once.
TEST_F(StridedTest, ResidualsGoToTheSameReplicaOfWhateverStageAndTensorRank) {
  std::int64_t step = 0;
  for (const Layout& layout : {Layout{2, 1, 2}, Layout{2, 2, 1}, Layout{2, 2, 2}}) {
    ASSERT_EQ(SaveBy(layout, ++step, true), "saved");
    auto reader = CheckpointFolder(path_).Open(step, OwnerOf(kDims));
    ASSERT_TRUE(reader) << reader.error().message;
    const auto residuals = [&](const std::vector<ParameterBlock>& blocks, std::int64_t rank,
                               std::int64_t ranks) {
      std::vector<float> values(static_cast<std::size_t>(MapOf(blocks).size()));
      EXPECT_TRUE(reader->Read({blocks, {}, rank, ranks}, Only(kResiduals, values)));
      return values;
    };
    for (const auto& blocks : ArenasOf(kDims, layout))
      for (std::int64_t replica = 0; replica < 2; ++replica)
        EXPECT_THAT(residuals(blocks, replica, 2), testing::Each(static_cast<float>(1 + replica)));
    const auto whole = adaptive_train::BlocksOf(WholeLayout(kDims));
    EXPECT_THAT(residuals(whole, 0, 1), testing::Each(3.0F));
    // Four replicas without stages: nothing is lost, nothing counts twice.
    std::vector<float> sum(static_cast<std::size_t>(MapOf(whole).size()), 0.0F);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const auto part = residuals(whole, rank, 4);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    EXPECT_THAT(sum, testing::Each(3.0F));
  }
}

/// The index does not grow with ranks times buckets: 6.7 billion parameters on a thousand ranks.
TEST(IndexSize, OfAModelOnAThousandRanksIsAFewNumbersPerRank) {
  const ModelDims dims{.layers = 32, .heads = 32, .hidden = 4096, .sequence = 2048, .vocab = 50257};
  const std::vector<CheckpointParameter> parameters = ParametersOf(WholeLayout(dims));
  for (const Layout& layout : {Layout{1000, 1, 1}, Layout{25, 8, 5}}) {
    std::vector<ShardIndex> shards;
    std::size_t bytes = 0, hashes = 0;
    std::int64_t elements = 0, pieces = 0;
    for (const auto& blocks : ArenasOf(dims, layout)) {
      const ArenaMap map = ArenaMap::Of(ModelPlaces(parameters), blocks).value();
      const BucketRule rule{{map.size()}, 1 << 20, layout.data};
      const auto first = static_cast<std::int64_t>(shards.size());
      for (std::int64_t place = 0; place < layout.data; ++place) {
        ShardIndex& index = shards.emplace_back();
        index.arena_of = first;
        if (place == 0) index.arena = CheckpointArena{blocks, rule};
        index.place = place;
        for (const ElementRange& range : map.WithoutCopies(rule.OwnedBy(place))) {
          index.elements += range.size();
          pieces += 3;
        }
        elements += index.elements;
        index.block_hashes.resize(
            static_cast<std::size_t>((index.Bytes() + kCheckpointBlockBytes - 1) /
                                     kCheckpointBlockBytes),
            0x0123456789abcdef);
        bytes += IndexText(index).size();
        hashes += 19 * index.block_hashes.size();
      }
    }
    const CheckpointManifest manifest{StepOf(1), parameters,
                                      std::vector<ManifestShard>(1000, {80'000'000, ~0ULL})};
    bytes += ManifestText(manifest).value().size();
    EXPECT_GT(elements, 6'600'000'000);
    const auto covered = CheckCoverage(parameters, shards);
    EXPECT_TRUE(covered) << covered.error().message;
    std::cout << "index of " << elements << " parameters on " << shards.size() << " ranks (data "
              << layout.data << ", tensor " << layout.tensor << ", pipeline " << layout.pipeline
              << "): " << bytes << " bytes, " << hashes << " of them hashes of the content; "
              << pieces << " pieces need not be named\n";
    EXPECT_LT(bytes, std::size_t{4} << 20);
    EXPECT_LT(bytes - hashes, 1000 * 150 + 8 * parameters.size() * 200);
  }
}

}  // namespace
}  // namespace adaptive_train::checkpoint_strided_test
