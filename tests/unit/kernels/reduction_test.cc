// Sums over arrays.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::reduction_test {
namespace {

/// Input: values.
struct ReductionCase {
  std::int64_t count;

  Arrays Inputs() const { return {RandomArray(count, 1)}; }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    const auto values = ToDevice<Accumulator<T>>(device, in[0]);
    return {{Op::kReduction,
             {device.Sum(count, values.data()), device.SquaredNorm(count, values.data())},
             true}};
  }
};

// The sum of 0, 1, 2, ... is exact in double in any order. Any tolerance would hide a missing
// element.
TEST(Reduction, SeesEveryElementOnce) {
  OnEveryInstructionSet([](const std::string& name) {
    TestedDevice<float> device(2);
    for (const std::int64_t count : {0, 1, 2, 7, 31, 64, 65, 1009, 16384, 16385, 50021}) {
      std::vector<float> values;
      double squares = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(i));
        squares += static_cast<double>(i) * static_cast<double>(i);
      }
      const auto there = OnDevice(device, values);
      EXPECT_EQ(static_cast<double>(count * (count - 1) / 2), device.Sum(count, there.data()))
          << name;
      EXPECT_EQ(squares, device.SquaredNorm(count, there.data())) << name;
    }
  });
}

TEST(Reduction, AgreesWithTheReference) {
  for (const std::int64_t count : {0, 5, 1000, 40009}) ExpectAgreement(ReductionCase{count});
}

TEST(Reduction, AddsUpInDouble) {
  const std::vector<float> values{1e20F, 1.0F, -1e20F, 3e-30F};
  TestedDevice<float> device(1);
  const double large = values[0];
  EXPECT_EQ(2 * large * large, device.SquaredNorm(4, OnDevice(device, values).data()));
  const auto small = OnDevice(device, std::vector<float>(1000, 1e-30F));
  EXPECT_NEAR(1e-57, device.SquaredNorm(1000, small.data()), 1e-62);
}

TEST(Reduction, PassesOnWhatIsNotFinite) {
  OnEveryInstructionSet([](const std::string& name) {
    TestedDevice<float> device(1);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const std::size_t at : {0U, 19000U, 19999U}) {
        std::vector<float> values(20000, 1.0F);
        values[at] = bad;
        const auto there = OnDevice(device, values);
        EXPECT_FALSE(std::isfinite(device.SquaredNorm(20000, there.data()))) << name;
        EXPECT_FALSE(std::isfinite(device.Sum(20000, there.data()))) << name;
      }
    }
  });
}

}  // namespace
}  // namespace adaptive_train::kernels::reduction_test
