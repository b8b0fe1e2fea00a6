// Every backward of the float64 reference against central differences of its forward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/reference/reference_device.h"
#include "tests/unit/kernels/operation_cases.h"

namespace adaptive_train::kernels {
namespace {

template <class Case>
void ExpectGradientsOfObjective(const Case& a_case) {
  constexpr double kStep = 1e-5, kTolerance = 1e-8;
  reference::ReferenceDevice<double> device;
  Arrays inputs = a_case.Inputs();
  for (const std::size_t before : Case::GradientsBefore())
    std::fill(inputs[before].begin(), inputs[before].end(), 0.0);
  const Arrays outputs = a_case.Run(device, inputs);
  for (const GradientPair& pair : Case::Gradients()) {
    ASSERT_EQ(inputs[pair.input].size(), outputs[pair.gradient].size());
    ASSERT_FALSE(inputs[pair.input].empty());
    for (std::size_t i = 0; i < inputs[pair.input].size(); ++i) {
      double& value = inputs[pair.input][i];
      const double center = value;
      value = center + kStep;
      const double above = a_case.Objective(inputs, a_case.Run(device, inputs));
      value = center - kStep;
      const double below = a_case.Objective(inputs, a_case.Run(device, inputs));
      value = center;
      const double gradient = outputs[pair.gradient][i];
      EXPECT_NEAR((above - below) / (2 * kStep), gradient,
                  kTolerance * std::max(1.0, std::abs(gradient)))
          << "input " << pair.input << " at " << i;
    }
  }
}

TEST(Gradients, LayerNorm) {
  ExpectGradientsOfObjective(LayerNormCase{4, 6});
  ExpectGradientsOfObjective(LayerNormCase{1, 2});
}

TEST(Gradients, Gelu) { ExpectGradientsOfObjective(GeluCase{50}); }

TEST(Gradients, Attention) {
  ExpectGradientsOfObjective(AttentionCase{2, 5, 2, 3});
  ExpectGradientsOfObjective(AttentionCase{1, 1, 1, 1});
}

TEST(Gradients, Embedding) { ExpectGradientsOfObjective(EmbeddingCase{3, 4, 2}); }

TEST(Gradients, CrossEntropy) { ExpectGradientsOfObjective(CrossEntropyCase{6, 5}); }

// The products are each other's gradients; this holds the one to the definition.
TEST(Gradients, MatmulByHand) {
  reference::ReferenceDevice<double> device;
  MatmulCase a_case{2, 3, 2, false, false, true, false};
  Arrays in{{1, 2, 3, 4}, {1, 0, 2, 0, 1, 3}, {10, 20, 30}, Array(6, kUnread)};
  EXPECT_EQ((Array{11, 22, 38, 13, 24, 48}), a_case.Run(device, in)[0]);
  in[1] = {1, 0, 0, 1, 2, 3};
  a_case.transpose_b = true;
  EXPECT_EQ((Array{11, 22, 38, 13, 24, 48}), a_case.Run(device, in)[0]);
  in[0] = {1, 3, 2, 4};
  a_case.transpose_a = true;
  EXPECT_EQ((Array{11, 22, 38, 13, 24, 48}), a_case.Run(device, in)[0]);
  in[3] = Array(6, 1.0);
  a_case.accumulate = true;
  EXPECT_EQ((Array{12, 23, 39, 14, 25, 49}), a_case.Run(device, in)[0]);
}

TEST(Gradients, BiasByHand) {
  reference::ReferenceDevice<double> device;
  EXPECT_EQ((Array{105, 207}), (BiasBackwardCase{2, 2}.Run(device, {{1, 2, 4, 5}, {100, 200}})[0]));
}

// With zero moments the first step moves by lr against the gradient's sign, and decay by its share.
TEST(Gradients, AdamWByHand) {
  reference::ReferenceDevice<double> device;
  double parameter = 2, gradient = -0.5, first = 0, second = 0;
  device.AdamW({.count = 1,
                .parameters = &parameter,
                .gradients = &gradient,
                .first_moments = &first,
                .second_moments = &second,
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
}

}  // namespace
}  // namespace adaptive_train::kernels
