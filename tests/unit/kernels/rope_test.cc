// Rotary position embedding.
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::rope_test {
namespace {

/// Input: values.
struct RopeCase {
  std::int64_t rows, sequence, heads, rotated_heads, head_size;
  double base = kRopeBase;
  bool inverse = false;
  RopeScaling scaling = {};

  Arrays Inputs() const { return {RandomArray(rows * heads * head_size, 1)}; }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    auto values = ToDevice<T>(device, in[0]);
    device.Rope(Arguments(values));
    return {{Op::kRope, ToHost(values)}};
  }

  template <class T>
  RopeArguments<T> Arguments(Buffer<T>& values) const {
    return {.rows = rows,
            .sequence = sequence,
            .heads = heads,
            .rotated_heads = rotated_heads,
            .head_size = head_size,
            .base = base,
            .scaling = scaling,
            .inverse = inverse,
            .values = values.data()};
  }
};

/// Of four rates with base 20 the first is unchanged, the second is in between, and the others are
/// slower.
constexpr RopeScaling kStretched{
    .factor = 8, .low_freq_factor = 1, .high_freq_factor = 2, .original_sequence = 16};

TEST(Rope, AgreesWithTheReference) {
  for (const bool inverse : {false, true}) {
    for (const std::int64_t head_size : {2, 6, 32, 64, 70}) {
      ExpectAgreement(RopeCase{10, 5, 3, 2, head_size, kRopeBase, inverse});
    }
    ExpectAgreement(RopeCase{0, 4, 2, 2, 8, 500, inverse});
    ExpectAgreement(RopeCase{6, 3, 4, 0, 8, 500, inverse});
    ExpectAgreement(RopeCase{514, 257, 7, 5, 16, 500, inverse});
    ExpectAgreement(RopeCase{514, 257, 7, 5, 16, 5e5, inverse, kStretched});
  }
}

TEST(Rope, AnglesFollowEveryCallsShape) {
  TestedDevice<float> device(1);
  reference::ReferenceDevice<double> oracle;
  for (const RopeCase& a_case :
       {RopeCase{8, 8, 1, 1, 4}, RopeCase{8, 4, 1, 1, 4}, RopeCase{8, 8, 1, 1, 4, 77.0},
        RopeCase{8, 8, 1, 1, 8, 77.0}, RopeCase{8, 8, 1, 1, 8, 77.0, false, kStretched},
        RopeCase{8, 8, 1, 1, 8, 77.0}, RopeCase{8, 8, 1, 1, 4}}) {
    const Arrays in = a_case.Inputs();
    ExpectWithin(Tolerance<float>(Op::kRope), a_case.Run(oracle, in)[0].values,
                 a_case.Run(device, in)[0].values, "after another shape");
  }
}

// The second figure is from transformers' llama3 rope in float32.
TEST(Rope, ScalingSlowsTheSlowTurnsOnly) {
  const auto rate = [](std::int64_t i) { return RopeRate(20, kStretched, 8, i); };
  EXPECT_EQ(rate(0), 1);
  EXPECT_NEAR(rate(1), 0.14358066022396088, 1e-7);
  EXPECT_DOUBLE_EQ(rate(2), 1 / std::sqrt(20.0) / 8);
  EXPECT_DOUBLE_EQ(rate(3), std::pow(20.0, -0.75) / 8);
  EXPECT_EQ(RopeRate(20, {}, 8, 3), std::pow(20.0, -0.75));
}

TEST(Rope, InverseTurnsBack) {
  reference::ReferenceDevice<double> device;
  RopeCase a_case{6, 3, 2, 1, 8};
  auto values = ToDevice<double>(device, a_case.Inputs()[0]);
  device.Rope(a_case.Arguments(values));
  EXPECT_GT(std::abs(ToHost(values)[16] - a_case.Inputs()[0][16]), 1e-3) << "position 1 is turned";
  EXPECT_EQ(ToHost(values)[8], a_case.Inputs()[0][8]) << "the second head is not";
  a_case.inverse = true;
  device.Rope(a_case.Arguments(values));
  ExpectWithin({0, 1e-14}, a_case.Inputs()[0], ToHost(values), "there and back");
}

TEST(Rope, ByHand) {
  reference::ReferenceDevice<double> device;
  std::vector<double> values{1, 2, 3, 4, 1, 2, 3, 4};
  device.Rope({.rows = 2,
               .sequence = 2,
               .heads = 1,
               .rotated_heads = 1,
               .head_size = 4,
               .base = 100,
               .values = values.data()});
  const double c0 = std::cos(1.0), s0 = std::sin(1.0), c1 = std::cos(0.1), s1 = std::sin(0.1);
  const Array expected{1, 2, 3, 4, c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1};
  ExpectWithin({0, 1e-15}, expected, values, "position 0 and 1");
}

}  // namespace
}  // namespace adaptive_train::kernels::rope_test
