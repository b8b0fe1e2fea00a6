// Loads, stores, sums and functions of vectors, on every instruction set, compared with the C
// library in long double.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/kernels/simd_test.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace adaptive_train::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class From, class To>
void Convert(const From* from, To* to, std::int64_t count) {
  ForVectors(0, count, [=](std::int64_t i, auto part) HWY_ATTR {
    Store(Load(from + i, part), to + i, part);
  });
}
void FromBFloat16(const BFloat16* from, float* to, std::int64_t count) { Convert(from, to, count); }
void FromFloat16(const Float16* from, float* to, std::int64_t count) { Convert(from, to, count); }
void ToBFloat16s(const float* from, BFloat16* to, std::int64_t count) { Convert(from, to, count); }
void ToFloat16s(const float* from, Float16* to, std::int64_t count) { Convert(from, to, count); }
void CopyFloats(const float* from, float* to, std::int64_t count) { Convert(from, to, count); }

template <class Function>
void Apply(const float* from, float* to, std::int64_t count, const Function& function) {
  ForVectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
    Store(function(Load(from + i, part)), to + i, part);
  });
}
void ExpOf(const float* from, float* to, std::int64_t count) {
  Apply(from, to, count, [](Floats x) HWY_ATTR { return Exp(x); });
}
void SigmoidOf(const float* from, float* to, std::int64_t count) {
  Apply(from, to, count, [](Floats x) HWY_ATTR { return Sigmoid(x); });
}
void NormalCdfOf(const float* from, float* to, std::int64_t count) {
  Apply(from, to, count, [](Floats x) HWY_ATTR { return NormalCdf(x, Bell(x)); });
}
void GeluTanhOf(const float* from, float* to, std::int64_t count) {
  Apply(from, to, count, [](Floats x) HWY_ATTR { return Gelu<GeluForm::kTanh>(x); });
}
void GeluErfOf(const float* from, float* to, std::int64_t count) {
  Apply(from, to, count, [](Floats x) HWY_ATTR { return Gelu<GeluForm::kErf>(x); });
}
void GeluTanhSlopeOf(const float* from, float* to, std::int64_t count) {
  Apply(from, to, count, [](Floats x) HWY_ATTR { return GeluDerivative<GeluForm::kTanh>(x); });
}
void GeluErfSlopeOf(const float* from, float* to, std::int64_t count) {
  Apply(from, to, count, [](Floats x) HWY_ATTR { return GeluDerivative<GeluForm::kErf>(x); });
}
float SumOfArray(const float* from, std::int64_t count) {
  return SumOf(count, [=](std::int64_t i, auto part) HWY_ATTR { return Load(from + i, part); });
}
float LargestOfVector(const float* from) { return LargestOf(Load(from)); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace adaptive_train::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::cpu {
namespace {

HWY_EXPORT(FromBFloat16);
HWY_EXPORT(FromFloat16);
HWY_EXPORT(ToBFloat16s);
HWY_EXPORT(ToFloat16s);
HWY_EXPORT(CopyFloats);
HWY_EXPORT(ExpOf);
HWY_EXPORT(SigmoidOf);
HWY_EXPORT(NormalCdfOf);
HWY_EXPORT(GeluTanhOf);
HWY_EXPORT(GeluErfOf);
HWY_EXPORT(GeluTanhSlopeOf);
HWY_EXPORT(GeluErfSlopeOf);
HWY_EXPORT(SumOfArray);
HWY_EXPORT(LargestOfVector);

using Function = void (*)(const float*, float*, std::int64_t);

std::vector<float> Results(Function function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  function(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  return y;
}

std::vector<float> Range(double first, double last, double step) {
  std::vector<float> x;
  for (double at = first; at <= last; at += step) x.push_back(static_cast<float>(at));
  return x;
}

/// Requires |y - exact(x)| <= absolute + relative |exact(x)|. Losing a result below 1.2e-38, the
/// smallest normal number, is allowed.
template <class Exact>
void ExpectClose(const std::string& name, Function function, const std::vector<float>& x,
                 double absolute, double relative, const Exact& exact) {
  const std::vector<float> y = Results(function, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double expected = exact(static_cast<long double>(x[i]));
    ASSERT_LE(std::abs(y[i] - expected), 1.2e-38L + absolute + relative * std::abs(expected))
        << name << " of " << x[i] << ": " << y[i];
  }
}

constexpr double kUlp = std::numeric_limits<float>::epsilon();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Simd, ExpIsWithinTwoUnitsInTheLastPlace) {
  OnEveryInstructionSet([](const std::string& name) {
    const Function exp = HWY_DYNAMIC_DISPATCH(ExpOf);
    const auto exact = [](long double x) { return std::exp(x); };
    ExpectClose(name, exp, Range(-87.3, 88.72, 0.00037), 0, 2 * kUlp, exact);
    ExpectClose(name, exp, Range(-1, 1, 0.0000041), 0, 2 * kUlp, exact);
    ExpectClose(name, exp, Range(-87.34, -87.32, 0.000008), 0, 2 * kUlp, exact);
    EXPECT_EQ((std::vector<float>{1, 1, 0, 0, 0, kInfinity, kInfinity, kInfinity}),
              Results(exp, {0.0F, -0.0F, -88.0F, -1e30F, -kInfinity, 88.73F, 1e30F, kInfinity}))
        << name;
    const float largest = std::nextafter(88.7228394F, 0.0F);
    EXPECT_TRUE(std::isfinite(Results(exp, {largest})[0])) << name;
    for (const std::uint32_t bits : {0x7fc00000U, 0x7f800001U, 0xffffffffU, 0x7fffffffU}) {
      EXPECT_TRUE(std::isnan(Results(exp, {std::bit_cast<float>(bits)})[0])) << name;
    }
  });
}

long double Cdf(long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }
long double Sigma(long double x) { return 1 / (1 + std::exp(-x)); }
long double Slope(long double x) { return 2 * kGeluRootTwoOverPi * (1 + kGeluCubic * x * x); }

TEST(Simd, Sigmoid) {
  OnEveryInstructionSet([](const std::string& name) {
    const Function sigmoid = HWY_DYNAMIC_DISPATCH(SigmoidOf);
    ExpectClose(name, sigmoid, Range(-87, 100, 0.0007), 0, 4 * kUlp, Sigma);
    EXPECT_EQ((std::vector<float>{0, 0, 1}), Results(sigmoid, {-kInfinity, -89.0F, kInfinity}));
    EXPECT_TRUE(std::isnan(Results(sigmoid, {std::nanf("")})[0])) << name;
  });
}

TEST(Simd, NormalCdf) {
  OnEveryInstructionSet([](const std::string& name) {
    const Function cdf = HWY_DYNAMIC_DISPATCH(NormalCdfOf);
    ExpectClose(name, cdf, Range(-3, 12, 0.0001), 2e-7, 0, Cdf);
    // Rounding x^2 / 2, about 90 at the end, costs the tail some digits.
    ExpectClose(name, cdf, Range(-13, 0, 0.0001), 0, 1e-5, Cdf);
    EXPECT_TRUE(std::isnan(Results(cdf, {std::nanf("")})[0])) << name;
  });
}

TEST(Simd, Gelu) {
  OnEveryInstructionSet([](const std::string& name) {
    const auto tanh_form = [](long double x) { return x * Sigma(x * Slope(x)); };
    const auto erf_form = [](long double x) { return x * Cdf(x); };
    const Function of_tanh = HWY_DYNAMIC_DISPATCH(GeluTanhOf);
    const Function of_erf = HWY_DYNAMIC_DISPATCH(GeluErfOf);
    for (const std::vector<float>& x : {Range(-8, 8, 0.00013), Range(-100, 100, 0.031)}) {
      ExpectClose(name, of_tanh, x, 2e-7, 2e-7, tanh_form);
      ExpectClose(name, of_erf, x, 2e-7, 2e-7, erf_form);
    }
    for (const Function gelu : {of_tanh, of_erf}) {
      EXPECT_EQ((std::vector<float>{0, 1e30F}), Results(gelu, {-1e30F, 1e30F})) << name;
      EXPECT_TRUE(std::isnan(Results(gelu, {std::nanf("")})[0])) << name;
    }
  });
}

TEST(Simd, GeluDerivative) {
  OnEveryInstructionSet([](const std::string& name) {
    const auto tanh_form = [](long double x) {
      const long double s = Sigma(x * Slope(x));
      return s + x * s * (1 - s) * (Slope(x) + 4 * kGeluRootTwoOverPi * kGeluCubic * x * x);
    };
    const auto erf_form = [](long double x) {
      return Cdf(x) + x * std::exp(-x * x / 2) * kGeluRootTwoOverPi / 2;
    };
    const Function of_tanh = HWY_DYNAMIC_DISPATCH(GeluTanhSlopeOf);
    const Function of_erf = HWY_DYNAMIC_DISPATCH(GeluErfSlopeOf);
    for (const std::vector<float>& x : {Range(-8, 8, 0.00013), Range(-100, 100, 0.031)}) {
      ExpectClose(name, of_tanh, x, 5e-7, 0, tanh_form);
      ExpectClose(name, of_erf, x, 5e-7, 0, erf_form);
    }
    for (const Function slope : {of_tanh, of_erf}) {
      const std::vector<float> ends = Results(slope, {-1e30F, -kInfinity, 1e30F, kInfinity});
      EXPECT_NEAR(0, ends[0], 1e-30) << name;
      EXPECT_NEAR(0, ends[1], 1e-30) << name;
      EXPECT_EQ(1, ends[2]) << name;
      EXPECT_EQ(1, ends[3]) << name;
      EXPECT_TRUE(std::isnan(Results(slope, {std::nanf("")})[0])) << name;
    }
  });
}

// All 65536 values in both directions, and numbers between two of them.
template <class T>
void ExpectConversions(const std::string& name, void (*decode)(const T*, float*, std::int64_t),
                       void (*encode)(const float*, T*, std::int64_t)) {
  std::vector<T> all, back;
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    all.push_back({static_cast<std::uint16_t>(bits)});
  std::vector<float> decoded(all.size());
  decode(all.data(), decoded.data(), 65536);
  std::vector<float> floats;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float expected = ToFloat(all[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(decoded[i])) << name << ", bits " << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(expected), std::bit_cast<std::uint32_t>(decoded[i]))
          << name << ", bits " << i;
    }
    const auto bits = std::bit_cast<std::uint32_t>(expected);
    for (const std::uint32_t difference :
         {0x0U, 0x1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U}) {
      floats.push_back(std::bit_cast<float>(bits + difference));
    }
  }
  for (std::uint32_t bits = 0; bits < 0xffff0000U; bits += 0xfffd)
    floats.push_back(std::bit_cast<float>(bits));
  back.resize(floats.size());
  encode(floats.data(), back.data(), static_cast<std::int64_t>(floats.size()));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i])) {
      ASSERT_TRUE(std::isnan(ToFloat(back[i]))) << name;
    } else {
      ASSERT_EQ(Rounded<T>(floats[i]).bits, back[i].bits) << name << ", " << floats[i];
    }
  }
}

TEST(Simd, ConvertsAsTheScalarCodeDoes) {
  OnEveryInstructionSet([](const std::string& name) {
    ExpectConversions<BFloat16>(name, HWY_DYNAMIC_DISPATCH(FromBFloat16),
                                HWY_DYNAMIC_DISPATCH(ToBFloat16s));
    ExpectConversions<Float16>(name, HWY_DYNAMIC_DISPATCH(FromFloat16),
                               HWY_DYNAMIC_DISPATCH(ToFloat16s));
  });
}

/// Memory whose last byte is before an inaccessible page.
class Brink {
 public:
  Brink() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ = static_cast<char*>(
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + page_, page_, PROT_NONE);
  }
  ~Brink() { munmap(memory_, 2 * page_); }
  Brink(const Brink&) = delete;
  Brink& operator=(const Brink&) = delete;

  template <class E>
  E* Last(std::int64_t count) {
    return reinterpret_cast<E*>(memory_ + page_) - count;
  }

 private:
  std::size_t page_;
  char* memory_;
};

template <class From, class To>
void ExpectNothingBeyond(void (*convert)(const From*, To*, std::int64_t)) {
  Brink source, destination;
  for (std::int64_t count = 0; count < 70; ++count) {
    From* from = source.Last<From>(count);
    To* to = destination.Last<To>(count + 1);
    const To before = ToElement<To>(-3);
    for (std::int64_t i = 0; i < count; ++i) from[i] = ToElement<From>(static_cast<double>(i));
    to[count] = before;
    convert(from, to, count);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(static_cast<float>(i), ToFloat(to[i]));
    ASSERT_EQ(-3.0F, ToFloat(to[count])) << "what follows is left alone";
    convert(from, destination.Last<To>(count), count);
  }
}

TEST(Simd, TouchesNothingBeyondTheArray) {
  OnEveryInstructionSet([](const std::string&) {
    ExpectNothingBeyond<float, float>(HWY_DYNAMIC_DISPATCH(CopyFloats));
    ExpectNothingBeyond<BFloat16, float>(HWY_DYNAMIC_DISPATCH(FromBFloat16));
    ExpectNothingBeyond<Float16, float>(HWY_DYNAMIC_DISPATCH(FromFloat16));
    ExpectNothingBeyond<float, BFloat16>(HWY_DYNAMIC_DISPATCH(ToBFloat16s));
    ExpectNothingBeyond<float, Float16>(HWY_DYNAMIC_DISPATCH(ToFloat16s));
  });
}

TEST(Simd, SumsSeeEveryElementOnce) {
  OnEveryInstructionSet([](const std::string& name) {
    std::vector<float> values;
    for (std::int64_t count = 0; count < 300; ++count) {
      EXPECT_EQ(static_cast<float>(count * (count + 1) / 2),
                HWY_DYNAMIC_DISPATCH(SumOfArray)(values.data(), count))
          << name;
      values.push_back(static_cast<float>(count + 1));
    }
    for (std::size_t at = 0; at < 4; ++at) {
      std::vector<float> lanes(64, -5.0F);
      EXPECT_EQ(-5, HWY_DYNAMIC_DISPATCH(LargestOfVector)(lanes.data())) << name;
      lanes[0] = 2;
      EXPECT_EQ(2, HWY_DYNAMIC_DISPATCH(LargestOfVector)(lanes.data())) << name;
    }
  });
}

}  // namespace
}  // namespace adaptive_train::kernels::cpu
#endif
