// The copy has the owned ranges one after the other, whoever copies them.
#include "runtime/checkpoint/checkpoint_snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/unit/runtime_checkpoint/saved_state.h"

namespace adaptive_train::checkpoint_snapshot_test {
namespace {

/// What rank 0, 1 or 2 owns of an arena that is dealt out in blocks; the last one may be shorter.
ElementRanges EveryThirdBlock(std::int64_t elements, std::int64_t block, std::int64_t rank) {
  ElementRanges owned;
  for (std::int64_t begin = rank * block; begin < elements; begin += 3 * block)
    owned.push_back({begin, std::min(begin + block, elements)});
  return owned;
}

/// Arenas that take several threads, and blocks of which rank 1 of three owns every third.
class SnapshotTest : public testing::Test {
 protected:
  static constexpr std::int64_t kElements = 3'000'001;

  SnapshotTest() {
    float first = 1;
    for (auto& arena : arenas_) {
      arena.resize(kElements);
      std::iota(arena.begin(), arena.end(), first);
      first += 0.25F;
    }
    const ElementRanges blocks = EveryThirdBlock(kElements, 65'537, 1);
    owned_ = {blocks, blocks, ElementRanges{{5, 6}, {6, 6}, {9, kElements}},
              ElementRanges{{0, kElements}}};
  }
  ConstTrainingArenas Spans() const {
    return {&host_memory, {arenas_[0], arenas_[1], arenas_[2], arenas_[3]}};
  }
  /// The first `count` arenas' owned elements.
  std::vector<float> Expected(std::size_t count) const {
    std::vector<float> values;
    for (std::size_t arena = 0; arena < count; ++arena)
      for (const auto& [begin, end] : owned_[arena])
        values.insert(values.end(), arenas_[arena].begin() + begin, arenas_[arena].begin() + end);
    return values;
  }
  static bool Same(std::span<const std::byte> bytes, const std::vector<float>& values) {
    return bytes.size() == values.size() * sizeof(float) &&
           std::memcmp(bytes.data(), values.data(), bytes.size()) == 0;
  }

  std::array<std::vector<float>, kTrainingArenas> arenas_;
  OwnedRanges owned_;
};

TEST_F(SnapshotTest, OwnedRangesInOrderWithAnyNumberOfThreads) {
  auto snapshot = CheckpointSnapshot::Allocate(owned_);
  ASSERT_TRUE(snapshot);
  for (const int threads : {1, 2, 3, 7, 64}) {
    for (auto& arena : arenas_) arena[arena.size() / 2] = static_cast<float>(-threads);
    snapshot->Take(Spans(), threads);
    EXPECT_TRUE(snapshot->has_residuals());
    EXPECT_TRUE(Same(snapshot->bytes(), Expected(kTrainingArenas))) << threads;
    EXPECT_EQ(snapshot->bytes().size(), snapshot->capacity());
  }
}

TEST_F(SnapshotTest, ResidualsThatAreAllZeroAreLeftOut) {
  auto snapshot = CheckpointSnapshot::Allocate(owned_);
  ASSERT_TRUE(snapshot);
  std::vector<float>& residuals = arenas_[kResiduals];
  std::fill(residuals.begin(), residuals.end(), 0.0F);
  snapshot->Take(Spans(), 2);
  EXPECT_FALSE(snapshot->has_residuals());
  EXPECT_TRUE(Same(snapshot->bytes(), Expected(kResiduals)));
  for (const float value : {1e-40F, -0.0F}) {
    for (const std::size_t place : {std::size_t{0}, residuals.size() / 2, residuals.size() - 1}) {
      residuals[place] = value;
      snapshot->Take(Spans(), 2);
      EXPECT_TRUE(Same(snapshot->bytes(), Expected(kTrainingArenas))) << value << " at " << place;
      residuals[place] = 0;
    }
  }
  residuals.clear();
  snapshot->Take(Spans(), 2);
  EXPECT_TRUE(Same(snapshot->bytes(), Expected(kResiduals)));
}

TEST_F(SnapshotTest, NothingOwnedIsNothing) {
  auto snapshot = CheckpointSnapshot::Allocate({});
  ASSERT_TRUE(snapshot);
  snapshot->Take({}, 2);
  EXPECT_TRUE(snapshot->bytes().empty());
  EXPECT_FALSE(snapshot->has_residuals());
}

}  // namespace
}  // namespace adaptive_train::checkpoint_snapshot_test
