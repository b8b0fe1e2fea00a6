// Logits, cross-entropy and its gradients.
#include "kernels/head_loss.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels {
namespace {

/// Inputs: input, weight, bias, previous d_weight, previous d_bias. Outputs: losses, d_input,
/// d_weight, d_bias.
struct HeadLossCase {
  std::int64_t rows, columns, vocab;
  bool has_bias = false, gradients = true;
  std::int64_t rows_without_target = 0;  // one in this many; 0: none
  double gradient_scale = 3;

  Arrays Inputs() const {
    return {RandomArray(rows * columns, 1), RandomArray(vocab * columns, 2), RandomArray(vocab, 3),
            RandomArray(vocab * columns, 4), RandomArray(vocab, 5)};
  }
  std::vector<std::int32_t> Targets() const {
    std::vector<std::int32_t> targets = RandomTokens(rows, vocab);
    for (std::size_t i = 0; rows_without_target > 0 && i < targets.size(); ++i) {
      if (static_cast<std::int64_t>(i) % rows_without_target == 0) targets[i] = -1;
    }
    return targets;
  }
  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    using Sum = Accumulator<T>;
    const auto input = ToDevice<T>(device, in[0]), weight = ToDevice<T>(device, in[1]),
               bias = ToDevice<T>(device, in[2]);
    const auto targets = TokensToDevice(device, Targets());
    auto losses = Unread<Sum>(device, rows), d_weight = ToDevice<Sum>(device, in[3]),
         d_bias = ToDevice<Sum>(device, in[4]);
    auto d_input = Unread<T>(device, gradients ? rows * columns : 0);
    device.HeadLoss({.rows = rows,
                     .columns = columns,
                     .vocab = vocab,
                     .input = input.data(),
                     .weight = weight.data(),
                     .bias = has_bias ? bias.data() : nullptr,
                     .targets = targets.data(),
                     .losses = losses.data(),
                     .gradient_scale = gradient_scale,
                     .d_input = gradients ? d_input.data() : nullptr,
                     .d_weight = gradients ? d_weight.data() : nullptr,
                     .d_bias = gradients && has_bias ? d_bias.data() : nullptr});
    return {{Op::kHeadLoss, ToHost(losses), true},
            {Op::kHeadLoss, ToHost(d_input)},
            {Op::kHeadLoss, ToHost(d_weight), true},
            {Op::kHeadLoss, ToHost(d_bias), true}};
  }
};

// The last shapes exceed a tile of the vocabulary, and a chunk of rows.
TEST(HeadLoss, AgreesWithTheReference) {
  for (const auto& [rows, columns, vocab] : {std::array<std::int64_t, 3>{0, 3, 5},
                                             {1, 1, 1},
                                             {1, 4, 2},
                                             {19, 7, 13},
                                             {130, 200, 33},
                                             {21, 5, 385},
                                             {11, 3, 1000},
                                             {1100, 2, 17}}) {
    for (const bool has_bias : {false, true}) {
      for (const bool gradients : {false, true}) {
        for (const std::int64_t without_target : {0, 1, 3}) {
          SCOPED_TRACE(testing::Message() << rows << " rows, vocabulary " << vocab);
          ExpectAgreement(HeadLossCase{rows, columns, vocab, has_bias, gradients, without_target});
        }
      }
    }
  }
}

TEST(HeadLoss, Gradients) {
  const auto objective = [](const Arrays&, const Outputs& out) {
    double sum = 0;
    for (const double loss : out[0].values) sum += 3 * loss;
    return sum;
  };
  for (const std::int64_t without_target : {0, 2}) {
    const HeadLossCase a_case{5, 3, 4, true, true, without_target};
    Arrays inputs = a_case.Inputs();
    for (const std::size_t before : {3U, 4U}) inputs[before].assign(inputs[before].size(), 0.0);
    ExpectGradients(a_case, inputs, {{0, 1}, {1, 2}, {2, 3}}, objective);
  }
}

TEST(HeadLoss, ByHand) {
  reference::ReferenceDevice<double> device;
  const double input = 2;
  const std::vector<double> weight{0.5, 0, -1}, bias{0, 1, 0};
  const std::vector<std::int32_t> target{1};
  double loss = 0;
  device.HeadLoss({.rows = 1,
                   .columns = 1,
                   .vocab = 3,
                   .input = &input,
                   .weight = weight.data(),
                   .bias = bias.data(),
                   .targets = target.data(),
                   .losses = &loss});
  EXPECT_DOUBLE_EQ(std::log(std::exp(1) + std::exp(1) + std::exp(-2)) - 1, loss);
}

/// The losses of two rows when logit `at` is replaced by `logit`; the target is a different one.
template <class T>
Array Losses(Device<T>& device, std::int64_t at, double logit) {
  const HeadLossCase a_case{2, 3, 400, true, false};
  Arrays in = a_case.Inputs();
  in[2][static_cast<std::size_t>(at)] = logit;
  return a_case.Run(device, in)[0].values;
}

template <class T>
void ExpectLossesThatAreNotFinite(Device<T>& device) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const std::int64_t at : {0, 1, 20, 383, 384, 399}) {
    for (const double loss : Losses(device, at, -kInfinity)) EXPECT_TRUE(std::isfinite(loss)) << at;
    for (const double loss : Losses(device, at, kInfinity)) EXPECT_FALSE(std::isfinite(loss)) << at;
    for (const double loss : Losses(device, at, std::nan("")))
      EXPECT_FALSE(std::isfinite(loss)) << at;
  }
}

TEST(HeadLoss, OfALogitThatIsNotFiniteIsNotFinite) {
  for (const std::int64_t at : {0, 1, 20, 383, 384, 399}) {
    for (const std::int32_t target : HeadLossCase{2, 3, 400}.Targets()) ASSERT_NE(at, target);
  }
  reference::ReferenceDevice<double> oracle;
  ExpectLossesThatAreNotFinite(oracle);
  OnEveryInstructionSet([](const std::string& name) {
    SCOPED_TRACE(name);
    cpu::CpuDevice<float> of_float(1);
    ExpectLossesThatAreNotFinite(of_float);
    cpu::CpuDevice<BFloat16> of_bfloat16(1);
    ExpectLossesThatAreNotFinite(of_bfloat16);
    cpu::CpuDevice<Float16> of_float16(1);
    ExpectLossesThatAreNotFinite(of_float16);
  });
}

}  // namespace
}  // namespace adaptive_train::kernels
