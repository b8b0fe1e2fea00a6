// The copy of a training state that is written while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"
#include "runtime/checkpoint/arena_copy.h"
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
  std::size_t capacity() const { return copy_.bytes(); }

  /// Copies the owned ranges of the arenas; those in host memory with `threads` threads, the caller
  /// being one of them.
  /// Residuals that are all zero, as right after a dense flush, are left out; so are those of an
  /// empty span.
  void Take(const ConstTrainingArenas& arenas, int threads);
  /// What Take has copied, in its order.
  std::span<const std::byte> bytes() const { return {memory_, size_}; }
  bool has_residuals() const { return size_ > copy_.bytes_before_residuals(); }

 private:
  explicit CheckpointSnapshot(const OwnedRanges& owned) : copy_(owned) {}

  ArenaCopy copy_;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace adaptive_train
