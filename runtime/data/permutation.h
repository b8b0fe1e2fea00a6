// A random order of [0, n) without a table: each position is computed on request.
#pragma once

#include <cstdint>

#include "core/counter_random.h"

namespace adaptive_train {

/// A bijection of [0, size), chosen by (seed, epoch). It is a Feistel network over the next power
/// of four with Philox as its round function, repeated until the result is in the range (Black,
/// Rogaway 2002). A value; any thread; a few Philox blocks per call.
class Permutation {
 public:
  /// size from 1 to 2^48.
  Permutation(std::int64_t size, std::uint64_t seed, std::uint32_t epoch);
  std::int64_t operator()(std::int64_t position) const;

 private:
  std::uint64_t Encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  CounterRandom random_;
  std::uint32_t epoch_;
  int half_bits_;
};

}  // namespace adaptive_train
