// The newest state of which nothing is missing, wherever its parts are.
#include "runtime/buddy/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace adaptive_train::inventory_test {
namespace {

using testing::ElementsAre;
using Step = std::pair<std::int64_t, std::int64_t>;

struct Part {
  int arena = 0, cover = 0;
  std::int64_t place = 0, places = 1;
};

KeptEntry Entry(std::int64_t attempt, std::int64_t step, const Part& part, int arenas = 1,
                bool residuals = false, KeptKind kind = KeptKind::kState) {
  KeptEntry entry;
  entry.attempt = attempt;
  entry.step = step;
  entry.kind = kind;
  entry.arenas = arenas;
  entry.residuals = residuals;
  entry.part = {part.arena, part.cover, part.place, part.places, kNoBuddy};
  return entry;
}

std::vector<Step> StepsOf(const std::vector<FoundState>& states) {
  std::vector<Step> steps;
  for (const FoundState& state : states) steps.emplace_back(state.attempt, state.step);
  return steps;
}

TEST(Inventory, NewestFirstAndLaterAttemptsBeforeEarlierOnes) {
  const auto states = CompleteStates(
      {{Entry(1, 50, {}), Entry(1, 51, {}), Entry(2, 50, {}), Entry(1, 9, {.places = 2})}});
  EXPECT_THAT(StepsOf(states), ElementsAre(Step{2, 50}, Step{1, 51}, Step{1, 50}));
}

TEST(Inventory, APlaceThatNobodyHasMakesAStateIncomplete) {
  const Part first{.place = 0, .places = 3}, second{.place = 1, .places = 3},
      third{.place = 2, .places = 3};
  EXPECT_TRUE(CompleteStates({{Entry(1, 5, first), Entry(1, 5, third)}, {}}).empty());
  const auto states = CompleteStates(
      {{Entry(1, 5, third)}, {}, {Entry(1, 5, first), Entry(1, 5, second), Entry(1, 5, third)}});
  ASSERT_EQ(states.size(), 1U);
  ASSERT_EQ(states[0].shards.size(), 3U);
  EXPECT_THAT(states[0].shards[0].holders, ElementsAre(2));
  EXPECT_THAT(states[0].shards[2].holders, ElementsAre(0, 2));
  EXPECT_EQ(states[0].shards[1].entry.part.place, 1);
}

TEST(Inventory, OneWholeCoverOfEachArenaIsEnough) {
  const Part half{.cover = 0, .place = 1, .places = 2}, whole{.cover = 1};
  const auto states = CompleteStates({{Entry(1, 5, half)}, {Entry(1, 5, whole)}});
  ASSERT_EQ(states.size(), 1U);
  ASSERT_EQ(states[0].shards.size(), 1U);
  EXPECT_EQ(states[0].shards[0].entry.part.cover, 1);
  EXPECT_TRUE(CompleteStates({{Entry(1, 5, whole, 2)}}).empty());  // the other arena is nowhere
  EXPECT_EQ(CompleteStates({{Entry(1, 5, whole, 2), Entry(1, 5, {.arena = 3}, 2)}}).size(), 1U);
}

TEST(Inventory, ResidualsOfEveryRankAreNeededWhereThereAreAny) {
  const auto state = Entry(1, 5, {}, 1, true);
  const auto residuals = [](std::int64_t place) {
    return Entry(1, 5, {.place = place, .places = 2}, 1, true, KeptKind::kOwnResiduals);
  };
  EXPECT_TRUE(CompleteStates({{state, residuals(0)}}).empty());
  const auto states = CompleteStates({{residuals(1), state, residuals(0)}});
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0].shards[0].entry.kind, KeptKind::kState);
  EXPECT_EQ(states[0].shards[2].entry.part.place, 1);
}

}  // namespace
}  // namespace adaptive_train::inventory_test
