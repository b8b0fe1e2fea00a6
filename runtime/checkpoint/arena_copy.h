// Ranges of a training state's arenas as consecutive bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/checkpoint/checkpoint_format.h"

namespace adaptive_train {

/// A value; any thread.
class ArenaCopy {
 public:
  explicit ArenaCopy(const OwnedRanges& owned);

  /// Of everything owned: the arenas one after the other, as in a shard's file.
  std::size_t bytes() const { return bytes_; }
  std::size_t bytes_before_residuals() const { return before_residuals_; }

  /// Copies the first `bytes` of what is owned to `to`; from host memory with `threads` threads, the
  /// caller being one of them. Blocks.
  void Copy(const ConstTrainingArenas& arenas, std::byte* to, std::size_t bytes, int threads) const;

 private:
  /// A range of an arena, in bytes.
  struct Stretch {
    std::size_t arena;
    std::size_t from;  // in the arena
    std::size_t to;    // in the copy
    std::size_t bytes;
  };

  void CopyPart(const ConstTrainingArenas& arenas, std::byte* to, std::size_t begin,
                std::size_t end) const;

  std::vector<Stretch> stretches_;  // ascending in the copy, without gaps
  std::size_t bytes_ = 0;
  std::size_t before_residuals_ = 0;
};

}  // namespace adaptive_train
