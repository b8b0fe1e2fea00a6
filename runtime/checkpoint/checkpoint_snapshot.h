// The copy of a training state that is written while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train {

/// Memory for a rank's part of the arenas, one after the other as in a shard's file. All its pages
/// are there from the beginning, so that it is in the peak that a run starts with and the first
/// copy is as fast as the others. Not for two threads at once.
class CheckpointSnapshot {
 public:
  /// Fails where there is not the memory.
  static Result<CheckpointSnapshot> Allocate(const OwnedRanges& owned);
  ~CheckpointSnapshot();
  CheckpointSnapshot(CheckpointSnapshot&& other) noexcept;
  CheckpointSnapshot& operator=(CheckpointSnapshot&&) = delete;

  /// Bytes there are for everything owned.
  std::size_t capacity() const { return capacity_; }

  /// Copies the owned ranges of the arenas; those in host memory with `threads` threads, the caller
  /// being one of them.
  /// Residuals that are all zero, as right after a dense flush, are left out; so are those of an
  /// empty span.
  void Take(const ConstTrainingArenas& arenas, int threads);
  /// What Take has copied, in its order.
  std::span<const std::byte> bytes() const { return {memory_, size_}; }
  bool has_residuals() const { return size_ > without_residuals_; }

 private:
  /// A range of an arena, in bytes.
  struct Stretch {
    std::size_t arena;
    std::size_t from;  // in the arena
    std::size_t to;    // in the snapshot
    std::size_t bytes;
  };

  explicit CheckpointSnapshot(const OwnedRanges& owned);
  void CopyAll(const ConstTrainingArenas& arenas, int threads) const;
  void Copy(const ConstTrainingArenas& arenas, std::size_t begin, std::size_t end) const;

  std::vector<Stretch> stretches_;  // ascending in the snapshot, without gaps
  std::size_t capacity_ = 0;
  std::size_t without_residuals_ = 0;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace adaptive_train
