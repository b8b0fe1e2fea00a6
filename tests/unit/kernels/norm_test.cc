// LayerNorm and RmsNorm.
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::norm_test {
namespace {

/// Inputs: input, weight, bias, d_output, then the previous d_input, d_weight and d_bias.
struct NormCase {
  bool layer;
  std::int64_t rows, columns;
  bool in_place = false, accumulate = false;
  double offset = 0;  // added to the input, to make the mean large against the deviation

  Arrays Inputs() const {
    Arrays in{RandomArray(rows * columns, 1), RandomArray(columns, 2),
              RandomArray(columns, 3),        RandomArray(rows * columns, 4),
              RandomArray(rows * columns, 5), RandomArray(columns, 6),
              RandomArray(columns, 7)};
    for (double& value : in[0]) value += offset;
    return in;
  }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    using Sum = Accumulator<T>;
    const auto input = ToDevice<T>(device, in[0]), weight = ToDevice<T>(device, in[1]);
    const auto bias = ToDevice<T>(device, in[2]);
    auto d_output = ToDevice<T>(device, in[3]), d_input = ToDevice<T>(device, in[4]);
    auto d_weight = ToDevice<Sum>(device, in[5]), d_bias = ToDevice<Sum>(device, in[6]);
    auto output = ToDevice<T>(device, in[0]);
    auto mean = Unread<Sum>(device, rows), reciprocal_std = Unread<Sum>(device, rows);
    const NormArguments<T> forward{.rows = rows,
                                   .columns = columns,
                                   .epsilon = 1e-3,
                                   .input = in_place ? output.data() : input.data(),
                                   .weight = weight.data(),
                                   .bias = layer ? bias.data() : nullptr,
                                   .output = output.data(),
                                   .mean = layer ? mean.data() : nullptr,
                                   .reciprocal_std = reciprocal_std.data()};
    const NormBackwardArguments<T> backward{.rows = rows,
                                            .columns = columns,
                                            .d_output = d_output.data(),
                                            .input = input.data(),
                                            .weight = weight.data(),
                                            .mean = forward.mean,
                                            .reciprocal_std = reciprocal_std.data(),
                                            .d_input = in_place ? d_output.data() : d_input.data(),
                                            .accumulate = accumulate,
                                            .d_weight = d_weight.data(),
                                            .d_bias = layer ? d_bias.data() : nullptr};
    if (layer) {
      device.LayerNorm(forward);
      device.LayerNormBackward(backward);
    } else {
      device.RmsNorm(forward);
      device.RmsNormBackward(backward);
    }
    Outputs out{{Op::kNorm, ToHost(output)},
                {Op::kNormBackward, ToHost(in_place ? d_output : d_input)},
                {Op::kNormBackward, ToHost(d_weight), true},
                {Op::kNorm, ToHost(reciprocal_std), true}};
    if (layer) {
      out.push_back({Op::kNormBackward, ToHost(d_bias), true});
      out.push_back({Op::kNorm, ToHost(mean), true});
    }
    return out;
  }
};

TEST(Norm, AgreesWithTheReference) {
  for (const bool layer : {true, false}) {
    for (const std::int64_t columns : {1, 2, 7, 16, 37, 64, 131}) {
      ExpectAgreement(NormCase{layer, 5, columns});
      ExpectAgreement(NormCase{layer, 5, columns, true});
      ExpectAgreement(NormCase{layer, 5, columns, false, true});
    }
    ExpectAgreement(NormCase{layer, 0, 3});
    ExpectAgreement(NormCase{layer, 131, 19, false, true});
    ExpectAgreement(NormCase{layer, 2, 1031});
  }
}

// A GPU's block has fewer warps for them, in the end one.
TEST(Norm, OfWideRows) {
  for (const bool layer : {true, false}) {
    ExpectAgreement(NormCase{layer, 9, 1500, false, true});
    ExpectAgreement(NormCase{layer, 3, 6500, true});
  }
}

// At most 64 pieces, whose sums are added in order.
TEST(Norm, SumsOverManyRows) {
  for (const bool layer : {true, false})
    ExpectAgreement(NormCase{layer, SlowDevice() ? 600 : 2113, 5});
}

TEST(Norm, LargeMeanLeavesTheDeviation) {
  ExpectAgreementIn<float>("float",
                           NormCase{.layer = true, .rows = 3, .columns = 67, .offset = 20});
}

TEST(Norm, GradientsAreThoseOfTheForward) {
  for (const bool layer : {true, false}) {
    for (const std::int64_t columns : {2, 6}) {
      const NormCase a_case{layer, 4, columns, false, true};
      Arrays in = a_case.Inputs();
      for (const std::size_t before : {4, 5, 6}) in[before].assign(in[before].size(), 0.0);
      std::vector<GradientPair> pairs{{0, 1}, {1, 2}};
      if (layer) pairs.push_back({2, 4});
      ExpectGradients(a_case, in, pairs, [](const Arrays& inputs, const Outputs& outputs) {
        return Dot(inputs[3], outputs[0].values);
      });
    }
  }
}

}  // namespace
}  // namespace adaptive_train::kernels::norm_test
