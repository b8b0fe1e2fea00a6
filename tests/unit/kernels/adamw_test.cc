// AdamW and rounding.
#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::adamw_test {
namespace {

/// Inputs: parameters, gradients, first and second moments.
struct AdamWCase {
  std::int64_t count, step;
  bool has_weights = true;
  double gradient_scale = 0.5, square_scale = 1;

  Arrays Inputs() const {
    Arrays in{RandomArray(count, 1), RandomArray(count, 2), RandomArray(count, 3),
              RandomArray(count, 4)};
    for (double& value : in[3]) value *= value;
    return in;
  }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    using Sum = Accumulator<T>;
    auto parameters = ToDevice<Sum>(device, in[0]), gradients = ToDevice<Sum>(device, in[1]);
    auto first = ToDevice<Sum>(device, in[2]), second = ToDevice<Sum>(device, in[3]);
    auto weights = ToDevice<T>(device, in[0]);
    device.AdamW({.count = count,
                  .parameters = parameters.data(),
                  .gradients = gradients.data(),
                  .first_moments = first.data(),
                  .second_moments = second.data(),
                  .weights = has_weights ? weights.data() : nullptr,
                  .step = step,
                  .lr = 0.03,
                  .weight_decay = 0.1,
                  .gradient_scale = gradient_scale,
                  .square_scale = square_scale});
    EXPECT_EQ(in[1], ToHost(gradients)) << "gradients are left as they are";
    return {{Op::kAdamW, ToHost(parameters), true},
            {Op::kAdamW, ToHost(first), true},
            {Op::kAdamW, ToHost(second), true},
            {Op::kAdamW, ToHost(weights)}};
  }
};

/// Input: parameters.
struct RoundCase {
  std::int64_t count;

  Arrays Inputs() const { return {}; }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays&) const {
    const auto parameters = ToDevice<Accumulator<T>>(device, RandomArray(count, 1));
    auto weights = Unread<T>(device, count);
    device.Round({.count = count, .parameters = parameters.data(), .weights = weights.data()});
    return {{Op::kRound, ToHost(weights)}};
  }
};

TEST(AdamW, AgreesWithTheReference) {
  for (const std::int64_t count : {0, 1, 7, 16, 53, 1000, 16384, 33331}) {
    ExpectAgreement(AdamWCase{count, 1});
    ExpectAgreement(AdamWCase{count, 100, false});
    ExpectAgreement(AdamWCase{.count = count, .step = 3, .square_scale = 0.3});
  }
}

TEST(AdamW, WeightsAreTheParametersRounded) {
  const AdamWCase a_case{1003, 3};
  TestedDevice<BFloat16> device(1);
  const Outputs out = a_case.Run(device, RoundedTo<BFloat16>(a_case.Inputs()));
  EXPECT_EQ(out[3].values, RoundedTo<BFloat16>({out[0].values})[0]);
}

// With zero moments the first step moves by lr against the gradient's sign, and decay by its share.
TEST(AdamW, ByHand) {
  reference::ReferenceDevice<double> device;
  double parameter = 2, gradient = -0.5, first = 0, second = 0, weight = 0;
  device.AdamW({.count = 1,
                .parameters = &parameter,
                .gradients = &gradient,
                .first_moments = &first,
                .second_moments = &second,
                .weights = &weight,
                .step = 1,
                .lr = 0.1,
                .beta1 = 0.9,
                .beta2 = 0.75,
                .epsilon = 0,
                .weight_decay = 0.5,
                .gradient_scale = 2});
  EXPECT_DOUBLE_EQ(2 + 0.1 - 0.1 * 0.5 * 2, parameter);
  EXPECT_DOUBLE_EQ(-0.1, first);
  EXPECT_DOUBLE_EQ(0.25, second);
  EXPECT_EQ(parameter, weight);
}

// A zero gradient with zero moments must not divide zero by zero.
TEST(AdamW, LeavesWhatHasNoGradient) {
  AdamWCase a_case{40, 1};
  Arrays in = a_case.Inputs();
  for (const std::size_t i : {1, 2, 3}) in[i].assign(40, 0.0);
  OnEveryInstructionSet([&](const std::string& name) {
    TestedDevice<float> device(1);
    const Outputs out = a_case.Run(device, in);
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(in[0][i] * (1 - 0.03 * 0.1), out[0].values[i], 1e-6) << name;
    }
  });
}

TEST(Round, AgreesWithTheReference) {
  for (const std::int64_t count : {0, 1, 15, 16, 1003, 40000}) ExpectAgreement(RoundCase{count});
}

}  // namespace
}  // namespace adaptive_train::kernels::adamw_test
