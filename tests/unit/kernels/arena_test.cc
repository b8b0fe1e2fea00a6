// Passes over arenas, compared with their definition for one element in kernels/arena.h.
#include "kernels/arena.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/reference/reference_device.h"
#include "tests/unit/kernels/arrays.h"
#include "tests/unit/kernels/tested_device.h"

namespace adaptive_train::kernels::arena_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> ThereAndBack(Device<float>& device, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const auto there = OnDevice(device, values);
  Buffer<std::byte> packed(device, Int8Bytes(values.size()));
  Buffer<float> back(device, values.size());
  device.PackInt8(count, there.data(), packed.data());
  device.UnpackInt8(count, packed.data(), back.data());
  return OnHost(back);
}

/// Counts with and without a remainder for any vector width, and zero.
class ArenaCounts : public testing::TestWithParam<std::int64_t> {
 protected:
  std::vector<float> Values(float first) const {
    std::vector<float> values(static_cast<std::size_t>(GetParam()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = first + 0.37f * static_cast<float>(i);
    return values;
  }
  TestedDevice<float> device{1};
};

TEST_P(ArenaCounts, AddsElementByElement) {
  const std::vector<float> into = Values(1), from = Values(-3), less = Values(7);
  const auto more_there = OnDevice(device, from), less_there = OnDevice(device, less);
  auto there = OnDevice(device, into);
  device.AddInto(GetParam(), more_there.data(), there.data());
  std::vector<float> sum = OnHost(there);
  for (std::size_t i = 0; i < into.size(); ++i) EXPECT_EQ(sum[i], into[i] + from[i]);
  there.CopyFromHost(into);
  device.AddDifference(GetParam(), more_there.data(), less_there.data(), there.data());
  sum = OnHost(there);
  for (std::size_t i = 0; i < into.size(); ++i) EXPECT_EQ(sum[i], into[i] + (from[i] - less[i]));
}

template <class T>
void ExpectWidens(std::int64_t count) {
  TestedDevice<T> device(2);
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(Rounded<T>(0.37F * static_cast<float>(i) - 3));
  auto there = OnDevice(device, std::vector<float>(values.size() + 1, 9));
  device.Widen(count, OnDevice(device, values).data(), there.data());
  const std::vector<float> sums = OnHost(there);
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
  auto there = OnDevice(device, before);
  device.Scale(GetParam(), 0.5f, there.data());
  std::vector<float> values = OnHost(there);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], before[i] * 0.5f);
  values = before;
  const float bad[] = {kNan, kInfinity, -kInfinity};
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = bad[i / 2 % 3];
  there.CopyFromHost(values);
  device.ClearNotFinite(GetParam(), there.data());
  values = OnHost(there);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i % 2 == 0 ? 0 : before[i]);
}

TEST_P(ArenaCounts, AHashTellsEveryBitApart) {
  std::vector<float> values = Values(1);
  const std::size_t bytes = values.size() * sizeof(float);
  auto there = OnDevice(device, values);
  const std::uint64_t hash = device.Hash(there.data(), bytes);
  EXPECT_EQ(XXH3_64bits(values.data(), bytes), hash);
  for (float& value : values) {
    const float before = value;
    value = std::nextafter(value, 1e9f);
    there.CopyFromHost(values);
    EXPECT_NE(device.Hash(there.data(), bytes), hash);
    value = before;
  }
}

TEST_P(ArenaCounts, EightBitsAreWithinHalfAStepOfTheBlocksLargest) {
  const std::vector<float> values = Values(-20), back = ThereAndBack(device, values);
  for (std::size_t begin = 0; begin < values.size(); begin += kInt8Block) {
    const std::size_t end = std::min(values.size(), begin + kInt8Block);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    for (std::size_t i = begin; i < end; ++i)
      EXPECT_NEAR(back[i], values[i], 0.5001f * largest / 127) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, ArenaCounts, testing::Values(0, 1, 7, 64, 128, 129, 1000));

// What is sent must not depend on the processor.
TEST(ArenaTest, PackedBytesAreThoseOfTheReference) {
  std::vector<float> values;
  for (const double value : RandomArray(1013, 3)) values.push_back(static_cast<float>(value));
  for (std::size_t i = 0; i < kInt8Block; ++i) values[i] *= 1e-40F;
  for (std::size_t i = kInt8Block; i < 2 * kInt8Block; ++i)
    values[i] = static_cast<float>(i) - 190.5F;
  values[5 * kInt8Block] = kNan;
  const auto packed = [&](Device<float>& device) {
    const auto there = OnDevice(device, values);
    Buffer<std::byte> bytes(device, Int8Bytes(values.size()));
    device.PackInt8(static_cast<std::int64_t>(values.size()), there.data(), bytes.data());
    return OnHost(bytes);
  };
  TestedDevice<float> device(1);
  reference::ReferenceDevice<float> oracle;
  EXPECT_EQ(packed(oracle), packed(device));
}

TEST(ArenaTest, SamplesLargestAndGatheredValuesAreThoseOfTheReference) {
  std::vector<float> gradients, residuals;
  for (const double value : RandomArray(5000, 4)) gradients.push_back(static_cast<float>(value));
  for (const double value : RandomArray(5000, 5)) residuals.push_back(static_cast<float>(value));
  const std::vector<std::size_t> places{4999, 0, 17, 17, 256};
  const auto results = [&](Device<float>& device) {
    const auto a = OnDevice(device, gradients), b = OnDevice(device, residuals);
    Buffer<float> sample(device, static_cast<std::size_t>(SampledOf(5000)));
    device.Sample(
        {.count = 5000, .gradients = a.data(), .residuals = b.data(), .sample = sample.data()});
    std::vector<float> all = OnHost(sample), gathered(places.size());
    device.GatherToHost(gathered, a.data(), places);
    all.insert(all.end(), gathered.begin(), gathered.end());
    all.push_back(static_cast<float>(device.Largest(5000, a.data(), b.data())));
    all.push_back(static_cast<float>(device.Largest(5000, a.data(), nullptr)));
    return all;
  };
  TestedDevice<float> device(1);
  reference::ReferenceDevice<float> oracle;
  EXPECT_EQ(results(oracle), results(device));
  gradients[4321] = kNan;
  EXPECT_TRUE(std::isnan(device.Largest(5000, OnDevice(device, gradients).data(), nullptr)));
}

/// Every third value, added where it came from.
TEST(ArenaTest, SelectedValuesAreAddedWhereTheyCameFrom) {
  for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 40009}) {
    const auto size = static_cast<std::size_t>(count);
    std::vector<std::uint64_t> bitmap((size + 63) / 64);
    std::vector<float> values, into(size, 1.0F), expected = into;
    for (std::size_t i = 0; i < size; i += i % 7 == 0 ? 1 : 3) {
      bitmap[i / 64] |= std::uint64_t{1} << (i % 64);
      values.push_back(static_cast<float>(i % 100) / 4);
      expected[i] += values.back();
    }
    std::vector<BFloat16> halves;
    for (const float value : values) halves.push_back(ToBFloat16(value));
    TestedDevice<float> device(1);
    const auto bits = OnDevice(device, bitmap);
    const auto add = [&](ValueFormat format, const auto& from) {
      auto there = OnDevice(device, into);
      EXPECT_EQ(std::ssize(values), device.AddSelected({.count = count,
                                                        .bitmap = bits.data(),
                                                        .format = format,
                                                        .values = from.data(),
                                                        .into = there.data()}));
      EXPECT_EQ(expected, OnHost(there)) << count;
    };
    add(ValueFormat::kFloat32, OnDevice(device, values));
    add(ValueFormat::kBFloat16, OnDevice(device, halves));
  }
}

TEST(ArenaTest, ABlockThatIsNotFiniteComesBackAsNan) {
  TestedDevice<float> device(1);
  std::vector<float> values(2 * kInt8Block, 1.0f);
  values[3] = kInfinity;
  const std::vector<float> back = ThereAndBack(device, values);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(back[i]), i < kInt8Block);
}

}  // namespace
}  // namespace adaptive_train::kernels::arena_test
