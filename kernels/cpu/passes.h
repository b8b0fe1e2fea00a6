// Data that the pieces of an operation share in addition to its arguments.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/counter_random.h"
#include "kernels/dropout.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace adaptive_train::kernels::cpu {

/// The gradients of a norm's weight and bias, summed per piece.
template <class T>
struct NormBackwardPass {
  const NormBackwardArguments<T>& x;
  float* partial;  // [pieces, 2, columns]
  std::int64_t rows_per_piece;
};

/// Cosines and sines of the angles of kernels/rope.h, each [sequence, head_size / 2].
struct RopeTable {
  std::int64_t sequence = 0;
  std::int64_t head_size = 0;
  double base = 0;
  RopeScaling scaling = {};
  std::vector<float> cosine;
  std::vector<float> sine;
};

template <class T>
struct RopePass {
  const RopeArguments<T>& x;
  const RopeTable& table;
};

using PhiloxRoundKeys = std::array<PhiloxKey, kPhiloxRounds>;

/// One of the batch's samples.
template <class T>
struct DropoutPass {
  const DropoutArguments<T>& x;
  const PhiloxRoundKeys& keys;
  std::int64_t sample;
};

}  // namespace adaptive_train::kernels::cpu
