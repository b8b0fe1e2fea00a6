#include "runtime/train/int8_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/counter_random.h"
#include "kernels/cpu/cpu_device.h"

namespace adaptive_train::int8_weights_test {
namespace {

using kernels::BFloat16;

/// A matrix of `matrix` elements from `begin` on, and a vector of 10 behind it.
GradientChunk Chunk(std::size_t begin, std::size_t matrix) {
  return {begin,
          begin + matrix + 10,
          {{begin, begin + matrix, true}, {begin + matrix, begin + matrix + 10, false}}};
}

struct Arenas {
  explicit Arenas(std::size_t size) : masters(size), weights(size) {
    const CounterRandom random(5, RandomPurpose::kInitialization);
    for (std::size_t i = 0; i < size; ++i) {
      masters[i] = static_cast<float>(0.02 * random.Normal({.element = i}));
      weights[i] = kernels::ToBFloat16(masters[i]);
    }
  }
  std::vector<BFloat16> RoundTrip(const GradientChunk& chunk) const {
    kernels::cpu::CpuDevice<BFloat16> device(1);
    std::vector<std::byte> packed(PackedBytes<BFloat16>(chunk));
    PackWeights<BFloat16>(device, chunk, masters, weights, packed);
    std::vector<BFloat16> out(weights.size(), BFloat16{0x1234});
    UnpackWeights<BFloat16>(device, chunk, packed, out);
    return out;
  }
  std::vector<float> masters;
  std::vector<BFloat16> weights;
};

TEST(Int8Weights, AreWithinHalfAStepOfTheirBlocksLargest) {
  const Arenas arenas(2000);
  const GradientChunk chunk = Chunk(48, 1000);
  const auto out = arenas.RoundTrip(chunk);
  for (std::size_t begin = 48; begin < 1048; begin += kernels::kInt8Block) {
    const std::size_t end = std::min<std::size_t>(1048, begin + kernels::kInt8Block);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i)
      largest = std::max(largest, std::abs(arenas.masters[i]));
    // Half a step, and what bfloat16 rounds off.
    for (std::size_t i = begin; i < end; ++i)
      EXPECT_NEAR(kernels::ToFloat(out[i]), arenas.masters[i],
                  largest / 254 + largest / 256 + 1e-9F);
  }
}

TEST(Int8Weights, VectorsStayAndNothingElseIsWritten) {
  const Arenas arenas(2000);
  const GradientChunk chunk = Chunk(48, 1000);
  const auto out = arenas.RoundTrip(chunk);
  for (std::size_t i = 1048; i < 1058; ++i) EXPECT_EQ(out[i].bits, arenas.weights[i].bits);
  EXPECT_EQ(out[47].bits, 0x1234);
  EXPECT_EQ(out[1058].bits, 0x1234);
}

TEST(Int8Weights, TakeABitMoreThanAByte) {
  EXPECT_EQ(PackedBytes<BFloat16>(Chunk(0, 1280)), 1280 + 10 * 4 + 20);
  EXPECT_EQ(PackedBytes<BFloat16>(Chunk(0, 1)), 1 + 4 + 20);
  EXPECT_EQ(PackedBytes<BFloat16>(GradientChunk{}), 0);
}

TEST(Int8Weights, ZerosTinyAndNonFiniteValues) {
  Arenas arenas(600);
  std::fill(arenas.masters.begin(), arenas.masters.begin() + 128, 0.0F);
  std::fill(arenas.masters.begin() + 128, arenas.masters.begin() + 256, 1e-44F);
  arenas.masters[300] = std::numeric_limits<float>::infinity();
  const auto out = arenas.RoundTrip(Chunk(0, 512));
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(kernels::ToFloat(out[i]), 0) << i;
  EXPECT_TRUE(std::isnan(kernels::ToFloat(out[300])));
  EXPECT_TRUE(std::isnan(kernels::ToFloat(out[256]))) << "of the same block";
  EXPECT_TRUE(std::isfinite(kernels::ToFloat(out[400])));
}

}  // namespace
}  // namespace adaptive_train::int8_weights_test
