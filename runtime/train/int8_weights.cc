#include "runtime/train/int8_weights.h"

#include <cassert>

namespace adaptive_train {
namespace {

template <class T>
std::size_t PackedBytesOf(const GradientPiece& piece) {
  return piece.selected ? kernels::Int8Bytes(piece.size()) : sizeof(T) * piece.size();
}

}  // namespace

template <class T>
std::size_t PackedBytes(const GradientChunk& chunk) {
  std::size_t bytes = 0;
  for (const GradientPiece& piece : chunk.pieces) bytes += PackedBytesOf<T>(piece);
  return bytes;
}

template <class T>
void PackWeights(kernels::Device<T>& device, const GradientChunk& chunk,
                 std::span<const float> masters, std::span<const T> weights,
                 std::span<std::byte> out) {
  assert(out.size() == PackedBytes<T>(chunk));
  std::byte* to = out.data();
  for (const GradientPiece& piece : chunk.pieces) {
    if (piece.selected) {
      device.PackInt8(static_cast<std::int64_t>(piece.size()), masters.data() + piece.begin, to);
    } else {
      device.CopyWithin(to, weights.data() + piece.begin, sizeof(T) * piece.size());
    }
    to += PackedBytesOf<T>(piece);
  }
}

template <class T>
void UnpackWeights(kernels::Device<T>& device, const GradientChunk& chunk,
                   std::span<const std::byte> packed, std::span<T> weights) {
  assert(packed.size() == PackedBytes<T>(chunk));
  const std::byte* from = packed.data();
  for (const GradientPiece& piece : chunk.pieces) {
    if (piece.selected) {
      device.UnpackInt8(static_cast<std::int64_t>(piece.size()), from,
                        weights.data() + piece.begin);
    } else {
      device.CopyWithin(weights.data() + piece.begin, from, sizeof(T) * piece.size());
    }
    from += PackedBytesOf<T>(piece);
  }
}

#define ADAPTIVE_TRAIN_INT8_WEIGHTS(T)                                                            \
  template std::size_t PackedBytes<T>(const GradientChunk&);                                      \
  template void PackWeights<T>(kernels::Device<T>&, const GradientChunk&, std::span<const float>, \
                               std::span<const T>, std::span<std::byte>);                         \
  template void UnpackWeights<T>(kernels::Device<T>&, const GradientChunk&,                       \
                                 std::span<const std::byte>, std::span<T>);
ADAPTIVE_TRAIN_INT8_WEIGHTS(kernels::BFloat16)
ADAPTIVE_TRAIN_INT8_WEIGHTS(kernels::Float16)
#undef ADAPTIVE_TRAIN_INT8_WEIGHTS

}  // namespace adaptive_train
