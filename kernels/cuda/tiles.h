// Counts before each tile of a long range, in one pass. Only .cu files include it.
#pragma once

#include <cstdint>

#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {

using Count = unsigned long long;  // what CUDA's 64-bit atomics take

/// The tiles of a pass over a long range: single-pass prefix sums with decoupled look-back (Merrill,
/// Garland 2016). A tile first publishes its own count, then the count of itself and all before it.
/// Tiles are taken by ticket, so that those before a running tile run or have run. `states` has one
/// place for each tile and two more behind them, all 0 at first.
class Tiles {
 public:
  /// The places that `tiles` tiles need.
  static std::int64_t Places(std::int64_t tiles) { return tiles + 2; }

  Tiles(std::int64_t tiles, Count* states) : tiles_(tiles), states_(states) {}

  /// The next tile. One thread of a block calls it.
  __device__ std::int64_t Take() const {
    return static_cast<std::int64_t>(atomicAdd(states_ + tiles_ + 1, Count{1}));
  }
  /// The counts of all tiles before `tile`, whose own is `count`. All lanes of one warp call it and
  /// get the sum: they look back at 32 tiles at a time, up to the latest that knows all before it.
  __device__ Count Before(std::int64_t tile, Count count) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0 && tile > 0) atomicExch(states_ + tile, kOwn | count);
    Count before = 0;
    for (std::int64_t latest = tile - 1; latest >= 0;) {
      const std::int64_t other = latest - lane;
      const Count state = other < 0 ? kAll : atomicAdd(states_ + other, Count{0});
      const unsigned unknown = __ballot_sync(kAllLanes, state == 0);
      const unsigned complete = __ballot_sync(kAllLanes, (state & kAll) != 0);
      const unsigned needed = complete ^ (complete - 1);  // up to the first complete one, or all
      if ((unknown & needed) != 0) continue;
      before += OverLanes((needed >> lane & 1) != 0 ? state & kCount : Count{0}, Plus());
      if (complete != 0) break;
      latest -= kWarp;
    }
    if (lane == 0) atomicExch(states_ + tile, kAll | (before + count));
    return before;
  }
  /// The place behind the last tile's, for a value that comes to the host with the count of all.
  __device__ Count* Extra() const { return states_ + tiles_; }

  /// What the host copies in the end: the last tile's place and Extra.
  const Count* End() const { return states_ + tiles_ - 1; }
  static std::int64_t CountOf(Count state) { return static_cast<std::int64_t>(state & kCount); }

 private:
  static constexpr Count kOwn = Count{1} << 62, kAll = Count{1} << 63, kCount = kOwn - 1;

  std::int64_t tiles_;
  Count* states_;
};

}  // namespace adaptive_train::kernels::cuda
