// The copy of a training state that is written while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train {

/// Memory for a rank's part of the three arenas, one after the other as in a shard's file. All its
/// pages are there from the beginning, so that it is in the peak that a run starts with and the
/// first copy is as fast as the others. Not for two threads at once.
class CheckpointSnapshot {
 public:
  /// Fails where there is not the memory.
  static Result<CheckpointSnapshot> Allocate(const OwnedRanges& owned);
  ~CheckpointSnapshot();
  CheckpointSnapshot(CheckpointSnapshot&& other) noexcept;
  CheckpointSnapshot& operator=(CheckpointSnapshot&&) = delete;

  /// Copies the owned ranges of the arenas, with `threads` threads, the caller being one of them.
  void Take(const ConstTrainingArenas& arenas, int threads);
  std::span<const std::byte> bytes() const { return {memory_, size_}; }

 private:
  CheckpointSnapshot(const OwnedRanges& owned, std::byte* memory, std::size_t size)
      : owned_(owned), memory_(memory), size_(size) {}

  OwnedRanges owned_;
  std::byte* memory_;
  std::size_t size_;
};

}  // namespace adaptive_train
