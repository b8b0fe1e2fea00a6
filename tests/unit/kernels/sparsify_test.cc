// Selection with error feedback, and its threshold.
#include "kernels/sparsify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::sparsify_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr ValueFormat kFormats[] = {ValueFormat::kFloat32, ValueFormat::kBFloat16,
                                    ValueFormat::kFloat8};

/// The smallest float that rounds to infinity in bfloat16, and the one before it.
const float kTooLarge = std::bit_cast<float>(0x7f7f8000U);
const float kLargest = std::bit_cast<float>(0x7f7f7fffU);

template <class E>
struct SelectCase {
  std::vector<E> gradients, residuals;  // no residuals: no feedback
  double threshold = 0;
  ValueFormat format = ValueFormat::kBFloat16;
  double keep = 1;

  E Sum(std::size_t i) const {
    return residuals.empty() ? gradients[i] : gradients[i] + residuals[i];
  }
};

/// The results of Select, with values as the floats that the other side reads.
template <class E>
struct Picked {
  Selected selected;
  std::vector<std::uint64_t> bitmap;
  std::vector<float> values;
  std::vector<E> residuals;

  bool Has(std::size_t i) const { return (bitmap[i / 64] >> (i % 64) & 1U) != 0; }
};

template <class T, class E = Accumulator<T>>
Picked<E> Select(Device<T>& device, const SelectCase<E>& a_case) {
  constexpr char kUntouched = 0x55;
  const auto count = static_cast<std::int64_t>(a_case.gradients.size());
  const auto bytes = static_cast<std::size_t>(count * BytesOf(a_case.format));
  const auto gradients = OnDevice(device, a_case.gradients);
  auto residuals = OnDevice(device, a_case.residuals);
  auto bitmap =
      OnDevice(device, std::vector<std::uint64_t>((a_case.gradients.size() + 63) / 64, ~0ULL));
  auto room = OnDevice(device, std::vector<char>(bytes + 64, kUntouched));
  Picked<E> picked;
  picked.selected =
      device.Select({.count = count,
                     .gradients = gradients.data(),
                     .residuals = a_case.residuals.empty() ? nullptr : residuals.data(),
                     .threshold = a_case.threshold,
                     .keep = a_case.keep,
                     .format = a_case.format,
                     .bitmap = bitmap.data(),
                     .values = room.data()});
  picked.bitmap = OnHost(bitmap);
  picked.residuals = OnHost(residuals);
  const std::vector<char> values = OnHost(room);
  EXPECT_TRUE(std::all_of(values.begin() + static_cast<std::ptrdiff_t>(bytes), values.end(),
                          [](char c) { return c == kUntouched; }));
  for (std::int64_t k = 0; k < std::min(picked.selected.count, count); ++k) {
    picked.values.push_back(a_case.format == ValueFormat::kFloat32
                                ? reinterpret_cast<const float*>(values.data())[k]
                                : ToFloat(reinterpret_cast<const BFloat16*>(values.data())[k]));
  }
  return picked;
}

/// All NaN are equal; -0 and 0 are not.
std::vector<std::uint32_t> Bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float x : values)
    bits.push_back(std::bit_cast<std::uint32_t>(std::isnan(x) ? kNaN : x));
  return bits;
}

std::vector<float> Floats(const Array& values) { return {values.begin(), values.end()}; }
std::vector<float> RandomFloats(std::int64_t count, std::uint32_t which) {
  return Floats(RandomArray(count, which));
}

/// Calls body(device, name) on every instruction set, for devices of each scalar.
template <class Body>
void OnEveryDevice(const Body& body) {
  OnEveryInstructionSet([&](const std::string& name) {
    TestedDevice<float> floats(1);
    TestedDevice<BFloat16> bfloat16s(2);
    TestedDevice<Float16> float16s(1);
    body(floats, "float, " + name);
    body(bfloat16s, "bfloat16, " + name);
    body(float16s, "float16, " + name);
  });
}

void ExpectTheReferencesBits(const SelectCase<float>& a_case) {
  reference::ReferenceDevice<float> oracle;
  const auto expected = Select(oracle, a_case);
  OnEveryDevice([&](auto& device, const std::string& name) {
    const auto actual = Select(device, a_case);
    const std::string what = name + ", " + std::to_string(a_case.gradients.size()) +
                             " elements, threshold " + std::to_string(a_case.threshold);
    EXPECT_EQ(expected.selected.count, actual.selected.count) << what;
    EXPECT_EQ(expected.selected.finite, actual.selected.finite) << what;
    EXPECT_EQ(expected.bitmap, actual.bitmap) << what;
    EXPECT_EQ(Bits(expected.values), Bits(actual.values)) << what;
    EXPECT_EQ(Bits(expected.residuals), Bits(actual.residuals)) << what;
  });
}

template <class E>
double ExactThreshold(const SelectCase<E>& a_case, std::int64_t wanted) {
  std::vector<double> sizes;
  for (std::size_t i = 0; i < a_case.gradients.size(); ++i) {
    sizes.push_back(std::isnan(a_case.Sum(i)) ? 0 : std::abs(a_case.Sum(i)));
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  return sizes[static_cast<std::size_t>(wanted - 1)];
}

template <class T, class E = Accumulator<T>>
double Threshold(Device<T>& device, const SelectCase<E>& a_case, std::int64_t wanted) {
  const auto gradients = OnDevice(device, a_case.gradients),
             residuals = OnDevice(device, a_case.residuals);
  return device.Threshold({.count = static_cast<std::int64_t>(a_case.gradients.size()),
                           .gradients = gradients.data(),
                           .residuals = a_case.residuals.empty() ? nullptr : residuals.data(),
                           .wanted = wanted});
}

/// Checks the contract's bounds on all devices, and equality on all processors.
void ExpectThreshold(const SelectCase<float>& a_case, std::int64_t wanted) {
  const double exact = ExactThreshold(a_case, wanted);
  reference::ReferenceDevice<float> oracle;
  EXPECT_EQ(exact, Threshold(oracle, a_case, wanted));
  TestedDevice<float> best(1);
  const double expected = Threshold(best, a_case, wanted);
  OnEveryDevice([&](auto& device, const std::string& name) {
    const double threshold = Threshold(device, a_case, wanted);
    EXPECT_EQ(expected, threshold) << name;
    EXPECT_LE(threshold, exact) << name << ", " << wanted;
    if (!std::isinf(exact)) {
      EXPECT_GT(threshold, exact - std::max(exact * 0x1p-8, 0x1p-134)) << name << ", " << wanted;
    }
    SelectCase<float> at_threshold = a_case;
    at_threshold.threshold = threshold;
    EXPECT_GE(Select(device, at_threshold).selected.count, exact > 0 ? wanted : 0) << name;
  });
}

TEST(Select, ByHand) {
  const SelectCase<float> a_case{.gradients = {3, -1, 0.5F, -4, 2},
                                 .residuals = {0.25F, 0, -0.5F, -0.015625F, -4},
                                 .threshold = 2,
                                 .format = ValueFormat::kBFloat16,
                                 .keep = 0.5};
  reference::ReferenceDevice<float> oracle;
  const auto expect = [&](auto& device, const std::string& name) {
    const auto picked = Select(device, a_case);
    EXPECT_EQ(3, picked.selected.count) << name;
    EXPECT_TRUE(picked.selected.finite) << name;
    EXPECT_EQ(std::vector<std::uint64_t>{0b11001}, picked.bitmap) << name;
    EXPECT_EQ((std::vector<float>{3.25F, -4, -2}), picked.values) << name;  // a tie: to even
    EXPECT_EQ((std::vector<float>{-0.125F, -1, 0.25F, -0.0078125F, 2}), picked.residuals) << name;
  };
  expect(oracle, "reference");
  OnEveryDevice(expect);
  SelectCase<float> above = a_case;
  above.threshold = 2 + 1e-12;  // not a float; rounded to one it would select 2
  OnEveryDevice([&](auto& device, const std::string& name) {
    const auto picked = Select(device, above);
    EXPECT_EQ((std::vector<float>{3.25F, -4}), picked.values) << name;
    EXPECT_EQ(0, picked.residuals[4]) << name;
  });
}

TEST(Select, IsTheReferenceBitForBit) {
  for (const std::int64_t count : {0, 1, 2, 15, 63, 64, 65, 127, 128, 1009, 10007}) {
    SelectCase<float> a_case{RandomFloats(count, 1), {}};
    for (const double threshold : {-1.0, 0.0, 0.1, 1.0, 2.0, 6.0, kInfinity}) {
      a_case.threshold = threshold;
      for (const ValueFormat format : kFormats) {
        a_case.format = format;
        a_case.residuals = {};
        ExpectTheReferencesBits(a_case);
        a_case.residuals = RandomFloats(count, 2);
        ExpectTheReferencesBits(a_case);
        a_case.keep = 0.9;
        ExpectTheReferencesBits(a_case);
      }
    }
  }
}

TEST(Select, KnowsEveryKindOfNumber) {
  const std::vector<float> kinds{0.0F,      -0.0F,     FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MIN / 2,
                                 -FLT_MIN,  0x1.01p0F, -0x1.03p0F,   0x1.0101p0F,   1,
                                 -1,        FLT_MAX,   kLargest,     -kTooLarge,    INFINITY,
                                 -INFINITY, kNaN};
  for (const float kind : kinds) {
    SelectCase<float> a_case;
    for (std::size_t i = 0; i < 149; ++i) {  // all gradients, residuals and places
      a_case.gradients.push_back(i % 3 == 0 ? kind : 0);
      a_case.residuals.push_back(kinds[i % kinds.size()]);
    }
    for (const float threshold : kinds) {
      a_case.threshold = std::abs(threshold);
      for (const ValueFormat format : kFormats) {
        a_case.format = format;
        ExpectTheReferencesBits(a_case);
      }
    }
  }
}

TEST(Select, RoundsToSizesFromTheThresholdOn) {
  const SelectCase<float> a_case{
      .gradients = {1, -1.125F, 1.375F, -3.25F, 1000, 0.75F, 0.5F, 1e30F},
      .residuals = std::vector<float>(8),
      .threshold = 0.625,
      .format = ValueFormat::kFloat8};
  reference::ReferenceDevice<float> oracle;
  const auto expect = [&](auto& device, const std::string& name) {
    const auto picked = Select(device, a_case);
    // 0.625 is the first of 128 sizes, 2^31 the last.
    EXPECT_EQ((std::vector<float>{1, -1.25F, 1.5F, -3.5F, 1024, 0.75F, 0x1p31F}), picked.values)
        << name;
    EXPECT_EQ((std::vector<float>{0, 0.125F, -0.125F, 0.25F, -24, 0, 0.5F, 1e30F - 0x1p31F}),
              picked.residuals)
        << name;
  };
  expect(oracle, "reference");
  OnEveryDevice(expect);
}

TEST(Float8, SizesAreTheNearestOnes) {
  EXPECT_EQ(127 * 4, NearestSize(1));
  EXPECT_EQ(127 * 4, NearestSize(-1));
  EXPECT_EQ(127 * 4, NearestSize(std::nextafter(1.125F, 0.0F)));
  EXPECT_EQ(127 * 4 + 1, NearestSize(1.125F));
  EXPECT_EQ(128 * 4, NearestSize(1.875F));
  EXPECT_EQ(0, NearestSize(0));
  EXPECT_EQ(1020, NearestSize(INFINITY));
  EXPECT_EQ(126 * 4 + 2, SmallestSize(0.75));
  EXPECT_EQ(kLeastSmallest, SmallestSize(0));
  EXPECT_EQ(kLeastSmallest, SmallestSize(-1));
  EXPECT_EQ(kMostSmallest, SmallestSize(kInfinity));
}

// The sum in double is exact, while a float sum could hide what rounding lost.
TEST(Select, LosesNothing) {
  SelectCase<float> a_case{RandomFloats(10007, 3), RandomFloats(10007, 4), 0.7};
  for (std::size_t i = 0; i < a_case.gradients.size(); ++i) {
    const int scale = static_cast<int>(i % 240) - 120;
    a_case.gradients[i] = std::ldexp(a_case.gradients[i], scale);
    a_case.residuals[i] = std::ldexp(a_case.residuals[i], scale);
  }
  // Where kFloat8's largest size ends far below e, the difference is not a float.
  for (const ValueFormat format : {ValueFormat::kFloat32, ValueFormat::kBFloat16}) {
    a_case.format = format;
    OnEveryDevice([&](auto& device, const std::string& name) {
      const auto picked = Select(device, a_case);
      EXPECT_TRUE(picked.selected.finite) << name;
      std::size_t k = 0;
      for (std::size_t i = 0; i < a_case.gradients.size(); ++i) {
        const float e = a_case.Sum(i);
        EXPECT_EQ(std::abs(e) >= 0.7, picked.Has(i)) << name;
        const double sent = picked.Has(i) ? picked.values.at(k++) : 0;
        ASSERT_EQ(static_cast<double>(e), sent + static_cast<double>(picked.residuals[i])) << name;
      }
      EXPECT_EQ(picked.values.size(), k) << name;
    });
  }
}

TEST(Select, SaysWhatIsNotFinite) {
  const auto finite = [](auto& device, float bad, std::size_t at, double threshold,
                         ValueFormat format) {
    SelectCase<float> a_case{RandomFloats(1009, 5), RandomFloats(1009, 6), threshold, format};
    a_case.gradients[at] = bad;
    return Select(device, a_case).selected.finite;
  };
  OnEveryDevice([&](auto& device, const std::string& name) {
    for (const std::size_t at : {0U, 70U, 1007U, 1008U}) {
      for (const ValueFormat format : kFormats) {
        for (const float bad : {kNaN, INFINITY, -INFINITY}) {
          EXPECT_FALSE(finite(device, bad, at, 1, format)) << name << ", " << bad;
          EXPECT_FALSE(finite(device, bad, at, kInfinity, format)) << name << ", " << bad;
        }
        EXPECT_TRUE(finite(device, kLargest, at, 1, format)) << name;
        EXPECT_TRUE(finite(device, -kTooLarge, at, FLT_MAX, format)) << name;  // not sent
      }
      EXPECT_TRUE(finite(device, -kTooLarge, at, 1, ValueFormat::kFloat32)) << name;
      EXPECT_FALSE(finite(device, -kTooLarge, at, 1, ValueFormat::kBFloat16)) << name;
    }
  });
}

// A double that is first rounded to float would be a tie for bfloat16.
TEST(Select, RoundsADoubleOnce) {
  reference::ReferenceDevice<double> device;
  const double above = 1 + 0x1p-8 + 0x1p-40, below = 1 + 3 * 0x1p-8 - 0x1p-40;
  const auto picked = Select(device, SelectCase<double>{{above, -below, 1e39}, {0, 0, 0}, 1});
  EXPECT_EQ((std::vector<float>{1 + 0x1p-7F, -(1 + 0x1p-7F), INFINITY}), picked.values);
  EXPECT_FALSE(picked.selected.finite);
  EXPECT_EQ(above - (1 + 0x1p-7), picked.residuals[0]);
  EXPECT_EQ((1 + 0x1p-7) - below, picked.residuals[1]);
}

TEST(Threshold, IsCloseBelowTheExactOne) {
  for (const std::int64_t count : {2, 63, 64, 65, 1009, 10007}) {
    SelectCase<float> a_case{RandomFloats(count, 1), {}};
    for (const double density : {0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0}) {
      const auto wanted = static_cast<std::int64_t>(density * static_cast<double>(count - 2)) + 1;
      ExpectThreshold(a_case, wanted);
    }
    a_case.residuals = RandomFloats(count, 2);
    ExpectThreshold(a_case, count / 2);
  }
}

TEST(Threshold, OfTiesZerosTinyAndInfiniteNumbers) {
  ExpectThreshold({std::vector<float>(1009, -1.25F), {}}, 7);
  std::vector<float> mixed(300, 0.0F);
  for (std::size_t i = 0; i < mixed.size(); i += 3) mixed[i] = i % 2 == 0 ? 1e-44F : -1e-39F;
  mixed[5] = -0.0F;
  mixed[6] = kNaN;
  mixed[7] = std::bit_cast<float>(0xff800001U);  // a NaN with infinity's leading bits
  mixed[11] = -INFINITY;
  mixed[13] = FLT_MAX;
  for (const std::int64_t wanted : {1, 2, 3, 20, 60, 90, 150, 299}) {
    ExpectThreshold({mixed, {}}, wanted);
  }
}

TEST(Threshold, AtTheEnds) {
  const SelectCase<float> some{RandomFloats(100, 1), {}}, none{};
  const auto expect = [&](auto& device, const std::string& name) {
    for (const std::int64_t wanted : {-1, 0}) {
      EXPECT_EQ(kInfinity, Threshold(device, some, wanted)) << name;
      EXPECT_EQ(kInfinity, Threshold(device, none, wanted)) << name;
    }
    for (const std::int64_t wanted : {100, 101}) {
      EXPECT_EQ(0, Threshold(device, some, wanted)) << name;
      EXPECT_EQ(0, Threshold(device, none, wanted)) << name;
    }
  };
  reference::ReferenceDevice<float> oracle;
  expect(oracle, "reference");
  OnEveryDevice(expect);
}

}  // namespace
}  // namespace adaptive_train::kernels::sparsify_test
