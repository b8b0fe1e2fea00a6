// Contract of rotary position embedding (Su et al. 2021) in the half-split order that Llama's
// checkpoints use.
#pragma once

#include <cstdint>

#include "core/rope_scaling.h"

namespace adaptive_train::kernels {

/// Rotates in place. For each row r at position p = r mod sequence, the first rotated_heads of its
/// `heads` heads, and i in [0, head_size / 2):
///   t = p * RopeRate(base, scaling, head_size, i)
///   x[i]                 becomes  x[i] cos t - x[i + head_size / 2] sin t
///   x[i + head_size / 2] becomes  x[i + head_size / 2] cos t + x[i] sin t
/// `inverse` rotates by -t, which is backward. values is [rows, heads, head_size]; head_size is
/// even.
template <class T>
struct RopeArguments {
  std::int64_t rows = 0;
  std::int64_t sequence = 1;
  std::int64_t heads = 0;
  std::int64_t rotated_heads = 0;
  std::int64_t head_size = 0;
  double base = kRopeBase;
  RopeScaling scaling = {};
  bool inverse = false;
  T* values = nullptr;
};

}  // namespace adaptive_train::kernels
