#include "runtime/train/int8_weights.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace adaptive_train {
namespace {

constexpr float kLargest = 127;

std::size_t Int8Bytes(std::size_t count) {
  return count + sizeof(float) * ((count + kInt8Block - 1) / kInt8Block);
}

std::byte* PackBlock(std::span<const float> values, std::byte* out) {
  float largest = 0;
  bool finite = true;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
    finite &= std::isfinite(value);
  }
  const float scale = finite ? largest / kLargest : std::numeric_limits<float>::quiet_NaN();
  // Of tiny values the scale may be 0 or lose bits; what it cannot hold is 0.
  const float times = finite && scale >= std::numeric_limits<float>::min() ? 1 / scale : 0;
  std::memcpy(out, &scale, sizeof scale);
  out += sizeof scale;
  for (const float value : values) {
    const float steps = finite ? std::clamp(value * times, -kLargest, kLargest) : 0;
    *out++ = static_cast<std::byte>(static_cast<std::int8_t>(std::lrintf(steps)));
  }
  return out;
}

template <class T>
const std::byte* UnpackBlock(const std::byte* in, std::span<T> values) {
  float scale;
  std::memcpy(&scale, in, sizeof scale);
  in += sizeof scale;
  for (T& value : values)
    value = kernels::Rounded<T>(scale * static_cast<float>(static_cast<std::int8_t>(*in++)));
  return in;
}

/// Calls visit(begin, end) for the blocks of a matrix's piece.
template <class Visit>
void ForEachBlock(const GradientPiece& piece, const Visit& visit) {
  for (std::size_t begin = piece.begin; begin < piece.end; begin += kInt8Block)
    visit(begin, std::min(piece.end, begin + kInt8Block));
}

}  // namespace

template <class T>
std::size_t PackedBytes(const GradientChunk& chunk) {
  std::size_t bytes = 0;
  for (const GradientPiece& piece : chunk.pieces)
    bytes += piece.matrix ? Int8Bytes(piece.size()) : sizeof(T) * piece.size();
  return bytes;
}

template <class T>
void PackWeights(const GradientChunk& chunk, std::span<const float> masters,
                 std::span<const T> weights, std::span<std::byte> out) {
  assert(out.size() == PackedBytes<T>(chunk));
  std::byte* to = out.data();
  for (const GradientPiece& piece : chunk.pieces) {
    if (piece.matrix) {
      ForEachBlock(piece, [&](std::size_t begin, std::size_t end) {
        to = PackBlock(masters.subspan(begin, end - begin), to);
      });
    } else {
      std::memcpy(to, weights.data() + piece.begin, sizeof(T) * piece.size());
      to += sizeof(T) * piece.size();
    }
  }
}

template <class T>
void UnpackWeights(const GradientChunk& chunk, std::span<const std::byte> packed,
                   std::span<T> weights) {
  assert(packed.size() == PackedBytes<T>(chunk));
  const std::byte* from = packed.data();
  for (const GradientPiece& piece : chunk.pieces) {
    if (piece.matrix) {
      ForEachBlock(piece, [&](std::size_t begin, std::size_t end) {
        from = UnpackBlock(from, weights.subspan(begin, end - begin));
      });
    } else {
      std::memcpy(weights.data() + piece.begin, from, sizeof(T) * piece.size());
      from += sizeof(T) * piece.size();
    }
  }
}

#define ADAPTIVE_TRAIN_INT8_WEIGHTS(T)                                                           \
  template std::size_t PackedBytes<T>(const GradientChunk&);                                     \
  template void PackWeights<T>(const GradientChunk&, std::span<const float>, std::span<const T>, \
                               std::span<std::byte>);                                            \
  template void UnpackWeights<T>(const GradientChunk&, std::span<const std::byte>, std::span<T>);
ADAPTIVE_TRAIN_INT8_WEIGHTS(kernels::BFloat16)
ADAPTIVE_TRAIN_INT8_WEIGHTS(kernels::Float16)
#undef ADAPTIVE_TRAIN_INT8_WEIGHTS

}  // namespace adaptive_train
