// Passes over arenas, compared with their definition for one element in kernels/arena.h.
#include "kernels/arena.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_device.h"

namespace adaptive_train::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Counts with and without a remainder for any vector width, and zero.
class ArenaCounts : public testing::TestWithParam<std::int64_t> {
 protected:
  std::vector<float> Values(float first) const {
    std::vector<float> values(static_cast<std::size_t>(GetParam()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = first + 0.37f * static_cast<float>(i);
    return values;
  }
  cpu::CpuDevice<float> device{1};
};

TEST_P(ArenaCounts, AddsElementByElement) {
  std::vector<float> into = Values(1), sum = into;
  const std::vector<float> from = Values(-3), less = Values(7);
  device.AddInto(GetParam(), from.data(), sum.data());
  for (std::size_t i = 0; i < into.size(); ++i) EXPECT_EQ(sum[i], into[i] + from[i]);
  sum = into;
  device.AddDifference(GetParam(), from.data(), less.data(), sum.data());
  for (std::size_t i = 0; i < into.size(); ++i) EXPECT_EQ(sum[i], into[i] + (from[i] - less[i]));
}

template <class T>
void ExpectWidens(std::int64_t count) {
  cpu::CpuDevice<T> device(2);
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(Rounded<T>(0.37F * static_cast<float>(i) - 3));
  std::vector<float> sums(values.size() + 1, 9);
  device.Widen(count, values.data(), sums.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sums[i], ToFloat(values[i]));
  EXPECT_EQ(sums.back(), 9);
}

TEST_P(ArenaCounts, Widens) {
  ExpectWidens<float>(GetParam());
  ExpectWidens<BFloat16>(GetParam());
  ExpectWidens<Float16>(GetParam());
}

TEST_P(ArenaCounts, ScalesAndClearsWhatIsNotFinite) {
  const std::vector<float> before = Values(-2);
  std::vector<float> values = before;
  device.Scale(GetParam(), 0.5f, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], before[i] * 0.5f);
  values = before;
  const float bad[] = {kNan, kInfinity, -kInfinity};
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = bad[i / 2 % 3];
  device.ClearNotFinite(GetParam(), values.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i % 2 == 0 ? 0 : before[i]);
}

TEST_P(ArenaCounts, AHashTellsEveryBitApart) {
  std::vector<float> values = Values(1);
  const std::size_t bytes = values.size() * sizeof(float);
  const std::uint64_t hash = device.Hash(values.data(), bytes);
  EXPECT_EQ(device.Hash(values.data(), bytes), hash);
  for (float& value : values) {
    const float before = value;
    value = std::nextafter(value, 1e9f);
    EXPECT_NE(device.Hash(values.data(), bytes), hash);
    value = before;
  }
}

TEST_P(ArenaCounts, EightBitsAreWithinHalfAStepOfTheBlocksLargest) {
  const std::vector<float> values = Values(-20);
  std::vector<std::byte> packed(Int8Bytes(values.size()));
  std::vector<float> back(values.size());
  device.PackInt8(GetParam(), values.data(), packed.data());
  device.UnpackInt8(GetParam(), packed.data(), back.data());
  for (std::size_t begin = 0; begin < values.size(); begin += kInt8Block) {
    const std::size_t end = std::min(values.size(), begin + kInt8Block);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    for (std::size_t i = begin; i < end; ++i)
      EXPECT_NEAR(back[i], values[i], 0.5001f * largest / 127) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, ArenaCounts, testing::Values(0, 1, 7, 64, 128, 129, 1000));

TEST(ArenaTest, ABlockThatIsNotFiniteComesBackAsNan) {
  cpu::CpuDevice<float> device(1);
  std::vector<float> values(2 * kInt8Block, 1.0f), back(values.size());
  values[3] = kInfinity;
  std::vector<std::byte> packed(Int8Bytes(values.size()));
  const auto count = static_cast<std::int64_t>(values.size());
  device.PackInt8(count, values.data(), packed.data());
  device.UnpackInt8(count, packed.data(), back.data());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(back[i]), i < kInt8Block);
}

}  // namespace
}  // namespace adaptive_train::kernels
