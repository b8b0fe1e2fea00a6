// How a tile of a pass over a long range learns what lies before it, from states that only blocks that
// run beside each other leave.
#include "kernels/cuda/tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace adaptive_train::kernels::cuda::tiles_test {
namespace {

constexpr Count kOwn = Count{1} << 62, kAll = Count{1} << 63;

__global__ void BeforeKernel(Tiles tiles, std::int64_t tile, Count own, Count* before) {
  before[threadIdx.x] = tiles.Before(tile, own);
}

/// Tile i has i + 1 elements. Up to tile `complete` all know what lies before them, or only that one
/// does and the others are not known at all; the later ones know their own count.
std::vector<Count> States(std::int64_t tiles, std::int64_t complete, bool earlier) {
  std::vector<Count> states(static_cast<std::size_t>(Tiles::Places(tiles)));
  for (std::int64_t i = earlier ? 0 : complete; i < tiles - 1; ++i) {
    const auto own = static_cast<Count>(i + 1);
    states[static_cast<std::size_t>(i)] = i <= complete ? kAll | own * (own + 1) / 2 : kOwn | own;
  }
  return states;
}

void ExpectLooksBack(std::int64_t tile, std::int64_t complete, bool earlier) {
  const Stream stream(0);
  std::vector<Count> states = States(tile + 1, complete, earlier), before(kWarp);
  Launch(stream, 1, kWarp, 0, BeforeKernel, Tiles(tile + 1, states.data()), tile, Count{7},
         before.data());
  const auto all = static_cast<Count>(tile * (tile + 1) / 2);
  EXPECT_EQ(before, std::vector<Count>(kWarp, all)) << tile << ", " << complete;
  EXPECT_EQ(states[static_cast<std::size_t>(tile)], kAll | (all + 7));
}

TEST(Tiles, LookBackToTheLatestThatKnowsAllBeforeIt) {
  for (const std::int64_t tile : {1, 5, 31, 32, 33, 64, 70}) {
    for (std::int64_t complete = 0; complete < tile; ++complete) {
      ExpectLooksBack(tile, complete, true);
      ExpectLooksBack(tile, complete, false);
    }
  }
}

TEST(Tiles, TheFirstHasNothingBeforeIt) {
  const Stream stream(0);
  std::vector<Count> states(static_cast<std::size_t>(Tiles::Places(1))), before(kWarp, 1);
  Launch(stream, 1, kWarp, 0, BeforeKernel, Tiles(1, states.data()), std::int64_t{0}, Count{9},
         before.data());
  EXPECT_EQ(before, std::vector<Count>(kWarp, 0));
  EXPECT_EQ(Tiles::CountOf(states[0]), 9);
}

}  // namespace
}  // namespace adaptive_train::kernels::cuda::tiles_test
