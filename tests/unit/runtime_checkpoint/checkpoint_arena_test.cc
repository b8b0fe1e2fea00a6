// Where the elements of strided blocks lie in a model.
#include "runtime/checkpoint/checkpoint_arena.h"

#include <gmock/gmock.h>

namespace adaptive_train::checkpoint_arena_test {
namespace {

using testing::ElementsAre;

const std::vector<CheckpointParameter> kParameters = {
    {"w", {3, 8}, 24}, {"b", {8}, 8}, {"none", {0}, 0}, {"deep", {2, 3, 2}, 12}, {"one", {}, 1}};

ArenaMap MapOf(const std::vector<ParameterBlock>& blocks) {
  return ArenaMap::Of(ModelPlaces(kParameters), blocks).value();
}
std::string Refusal(const ParameterBlock& block) {
  const auto map = ArenaMap::Of(ModelPlaces(kParameters), {{"b"}, block});
  return map ? "taken" : map.error().message;
}

TEST(ArenaMap, WholeParametersInTheModelsOrderAreOneRun) {
  const ArenaMap map = MapOf({{"w"}, {"b"}, {"none"}, {"deep"}, {"one"}});
  EXPECT_EQ(map.size(), 45);
  EXPECT_THAT(map.RunsOf({{0, 45}}), ElementsAre(ArenaRun{0, 0, 45}));
  EXPECT_THAT(map.RunsOf({{5, 7}, {40, 45}}), ElementsAre(ArenaRun{5, 5, 2}, ArenaRun{40, 40, 5}));
  EXPECT_THAT(MapOf({{"b"}, {"w"}}).RunsOf({{0, 32}}),
              ElementsAre(ArenaRun{0, 24, 8}, ArenaRun{8, 0, 24}));
}

TEST(ArenaMap, AColumnSplitHasARunForEachRange) {
  const ArenaMap map = MapOf({{"w", {1, 3}, {{0, 2}, {4, 7}}}, {"b", {}, {{6, 8}}}});
  EXPECT_EQ(map.size(), 12);
  EXPECT_THAT(map.RunsOf({{0, 12}}),
              ElementsAre(ArenaRun{0, 8, 2}, ArenaRun{2, 12, 3}, ArenaRun{5, 16, 2},
                          ArenaRun{7, 20, 3}, ArenaRun{10, 30, 2}));
  EXPECT_THAT(map.RunsOf({{1, 3}, {8, 11}}), ElementsAre(ArenaRun{1, 9, 1}, ArenaRun{2, 12, 1},
                                                         ArenaRun{8, 21, 2}, ArenaRun{10, 30, 1}));
}

TEST(ArenaMap, ARowSplitIsOneRun) {
  const ArenaMap map = MapOf({{"w", {1, 2}}, {"deep", {1, 2}}});
  EXPECT_THAT(map.RunsOf({{0, 14}}), ElementsAre(ArenaRun{0, 8, 8}, ArenaRun{8, 38, 6}));
}

TEST(ArenaMap, CopiesAreLeftOutOfWhatIsWritten) {
  const ArenaMap map = MapOf({{"w"}, {.name = "b", .copy = true}, {"one"}});
  EXPECT_THAT(map.WithoutCopies({{0, 33}}), ElementsAre(ElementRange{0, 24}, ElementRange{32, 33}));
  EXPECT_THAT(map.WithoutCopies({{20, 22}, {22, 26}, {30, 33}}),
              ElementsAre(ElementRange{20, 24}, ElementRange{32, 33}));
  EXPECT_THAT(map.RunsOf({{0, 33}}), ElementsAre(ArenaRun{0, 0, 32}, ArenaRun{32, 44, 1}));
}

TEST(ArenaMap, BlocksThatAreNotInTheModelAreRefused) {
  EXPECT_EQ(Refusal({"v"}), "\"v\" is not a parameter of the model");
  EXPECT_EQ(Refusal({"w", {2, 4}}), "\"w\" has rows [0, 3), not [2, 4)");
  EXPECT_EQ(Refusal({"b", {0, 2}}), "\"b\" has rows [0, 1), not [0, 2)");
  EXPECT_EQ(Refusal({"w", {}, {{0, 9}}}), "\"w\" has columns [0, 8) left, not [0, 9)");
  EXPECT_EQ(Refusal({"w", {}, {{0, 3}, {2, 4}}}), "\"w\" has columns [3, 8) left, not [2, 4)");
  EXPECT_EQ(Refusal({"none", {0, 1}}), "taken") << "it has a row of no columns";
}

TEST(BlocksOf, AStageHasItsParametersAndMarksTheSecondCopyOfATiedEmbedding) {
  const ModelDims dims{2, 2, 8, 4, 256, true};
  const auto first = BlocksOf(ParameterLayout(dims, {0, 1, true, false}));
  EXPECT_EQ(first[0], ParameterBlock{"wte.weight"});
  const auto last = BlocksOf(ParameterLayout(dims, {1, 2, false, true}));
  EXPECT_EQ(last.back(), (ParameterBlock{.name = "wte.weight", .copy = true}));
  EXPECT_FALSE(BlocksOf(ParameterLayout(dims, StageSlice::Whole(dims)))[0].copy);
}

}  // namespace
}  // namespace adaptive_train::checkpoint_arena_test
