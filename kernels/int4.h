// Arrays in 4 bits an element: whole numbers from -7 to 7 times a scale that 128 elements share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adaptive_train::kernels {

/// Elements that share a scale: a bfloat16, and after it the numbers plus 8. Of a block of m elements,
/// byte j holds element j in its lower half and element ceil(m / 2) + j in the upper one, where
/// there is one, else 0. The last block of an array may be shorter.
inline constexpr std::int64_t kInt4Block = 128;

/// Bytes of `count` packed elements.
constexpr std::size_t Int4Bytes(std::int64_t count) {
  const std::int64_t blocks = (count + kInt4Block - 1) / kInt4Block;
  const std::int64_t rest = count - count / kInt4Block * kInt4Block;
  return static_cast<std::size_t>(2 * blocks + count / kInt4Block * (kInt4Block / 2) +
                                  (rest + 1) / 2);
}

/// No scale is larger, so that no number times its scale overflows; nor that of elements up to
/// kInt4Largest. With feedback elements must be smaller, so that sums of many ranks can be packed.
inline constexpr float kInt4LargestScale = 0x1p124F, kInt4Largest = 0x1p126F;
inline constexpr float kInt4LargestWithFeedback = 0x1p100F;

namespace cpu {

/// With e[i] = gradients[i] + residuals[i], packs e, and keeps as the residual what is not sent:
///   scale         the largest |e| of the block / 7, rounded up; 0 for a block below 2^-100
///   number        e / scale, rounded to nearest
///   residuals[i]  e[i] - number * scale - (1 - keep) residuals[i]
/// The difference is exact: with keep = 1 nothing is lost. A block with an |e| that is not finite, or
/// too large, is packed as zeros. Its residuals are e, and NaN where |e| is too large: what spoils a
/// step must not come back in the next.
struct PackInt4Arguments {
  std::int64_t count = 0;
  const float* gradients = nullptr;
  float* residuals = nullptr;   // nullptr: no feedback, e = gradients
  double keep = 1;              // beta of equation (5) of the framework paper
  std::byte* packed = nullptr;  // Int4Bytes(count), need not be aligned
};

/// Whether all blocks could be packed. On the calling thread, in host memory.
bool PackInt4(const PackInt4Arguments& x);

/// to[i] += the element, to[i] = the element. `packed` may be what others sent: all of its numbers
/// times scales are finite if Int4ScalesRight.
void AddInt4(std::int64_t count, const std::byte* packed, float* to);
void UnpackInt4(std::int64_t count, const std::byte* packed, float* to);

/// Whether all scales are from 0 to kInt4LargestScale.
bool Int4ScalesRight(std::int64_t count, const std::byte* packed);

}  // namespace cpu
}  // namespace adaptive_train::kernels
