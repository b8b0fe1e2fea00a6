// Matrix products with all their epilogues, and gradients of weights.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/sanitized.h"
#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::matmul_test {
namespace {

enum class Residual { kNone, kBeside, kInPlace };

/// Inputs: a, b, bias, residual, gelu_input.
struct MatmulCase {
  std::int64_t rows, columns, inner;
  bool transpose_a = false, transpose_b = false, has_bias = false;
  Residual residual = Residual::kNone;
  GeluForm gelu = GeluForm::kNone;
  bool backward = false;  // of the GELU

  Arrays Inputs() const {
    return {RandomArray(rows * inner, 1), RandomArray(inner * columns, 2), RandomArray(columns, 3),
            RandomArray(rows * columns, 4), RandomArray(rows * columns, 5)};
  }
  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    const auto a = ToDevice<T>(device, in[0]), b = ToDevice<T>(device, in[1]),
               bias = ToDevice<T>(device, in[2]), beside = ToDevice<T>(device, in[3]),
               gelu_input = ToDevice<T>(device, in[4]);
    const bool in_place = residual == Residual::kInPlace, forward = !backward;
    auto c = in_place ? ToDevice<T>(device, in[3]) : Unread<T>(device, rows * columns);
    auto activated = Unread<T>(device, gelu != GeluForm::kNone && forward ? rows * columns : 0);
    device.Matmul(
        {.rows = rows,
         .columns = columns,
         .inner = inner,
         .a = a.data(),
         .transpose_a = transpose_a,
         .b = b.data(),
         .transpose_b = transpose_b,
         .bias = has_bias ? bias.data() : nullptr,
         .residual = in_place                        ? c.data()
                     : residual == Residual::kBeside ? beside.data()
                                                     : nullptr,
         .c = c.data(),
         .gelu = gelu,
         .activated = activated.data(),
         .gelu_input = gelu != GeluForm::kNone && backward ? gelu_input.data() : nullptr});
    return {{Op::kMatmul, ToHost(c)}, {Op::kActivated, ToHost(activated)}};
  }
};

/// Odd shapes, including 0 and 1, one that is aligned, and some that are cut into tiles.
constexpr std::array<std::array<std::int64_t, 3>, 10> kShapes{{{0, 3, 2},
                                                               {3, 0, 2},
                                                               {3, 2, 0},
                                                               {1, 1, 1},
                                                               {7, 5, 3},
                                                               {24, 32, 40},
                                                               {17, 31, 64},
                                                               {129, 193, 33},
                                                               {300, 67, 129},
                                                               {37, 401, 130}}};

template <class Body>
void ForOrientations(const Body& body) {
  for (const auto& [rows, columns, inner] : kShapes) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true})
        body(MatmulCase{rows, columns, inner, transpose_a, transpose_b});
    }
  }
}

/// Each orientation then goes with one of two biases or activation functions, and both occur.
bool OneOfTwo() { return kSanitized || SlowDevice(); }

TEST(Matmul, AgreesWithTheReference) {
  ForOrientations([](MatmulCase a_case) {
    for (const bool has_bias : {false, true}) {
      for (const Residual residual : {Residual::kNone, Residual::kBeside, Residual::kInPlace}) {
        const bool odd = a_case.transpose_a != a_case.transpose_b;
        if (OneOfTwo() && has_bias != ((residual == Residual::kBeside) != odd)) continue;
        a_case.has_bias = has_bias;
        a_case.residual = residual;
        ExpectAgreement(a_case);
      }
    }
  });
}

TEST(Matmul, WithAGeluAgreesWithTheReference) {
  ForOrientations([](MatmulCase a_case) {
    for (const GeluForm gelu : {GeluForm::kTanh, GeluForm::kErf}) {
      const bool odd = a_case.transpose_a != a_case.transpose_b;
      if (OneOfTwo() && odd != (gelu == GeluForm::kErf)) continue;
      a_case.gelu = gelu;
      a_case.has_bias = a_case.transpose_a;
      a_case.residual = a_case.transpose_b ? Residual::kBeside : Residual::kNone;
      a_case.backward = false;
      ExpectAgreement(a_case);
      a_case.has_bias = false;
      a_case.residual = Residual::kNone;
      a_case.backward = true;
      ExpectAgreement(a_case);
    }
  });
}

// Nodes with different processors may train one model.
TEST(Matmul, ProcessorsWithFusedProductsAgreeBitForBit) {
  const MatmulCase a_case{.rows = 200, .columns = 451, .inner = 900};
  const Arrays inputs = RoundedTo<float>(a_case.Inputs());
  std::vector<Array> products;
  OnEveryInstructionSet([&](const std::string& name) {
    if (!name.starts_with("AVX") && !name.starts_with("NEON")) return;  // these fuse
    TestedDevice<float> device(1);
    products.push_back(a_case.Run(device, inputs)[0].values);
    EXPECT_EQ(products.front(), products.back()) << name;
  });
}

// Recomputation relies on this.
TEST(Matmul, WithAGeluActivatesWhatItStores) {
  TestedDevice<BFloat16> device(1);
  MatmulCase a_case{.rows = 17, .columns = 31, .inner = 9, .gelu = GeluForm::kTanh};
  const Outputs outputs = a_case.Run(device, RoundedTo<BFloat16>(a_case.Inputs()));
  const auto c = ToDevice<BFloat16>(device, outputs[0].values);
  auto again = Unread<BFloat16>(device, 17 * 31);
  device.Gelu(
      {.count = 17 * 31, .form = GeluForm::kTanh, .input = c.data(), .output = again.data()});
  EXPECT_EQ(ToHost(again), outputs[1].values);
}

TEST(Matmul, ByHand) {
  reference::ReferenceDevice<double> device;
  MatmulCase a_case{2, 3, 2, false, false, true};
  Arrays in{{1, 2, 3, 4}, {1, 0, 2, 0, 1, 3}, {10, 20, 30}, Array(6, 1.0), Array(6)};
  EXPECT_EQ((Array{11, 22, 38, 13, 24, 48}), a_case.Run(device, in)[0].values);
  in[1] = {1, 0, 0, 1, 2, 3};
  a_case.transpose_b = true;
  EXPECT_EQ((Array{11, 22, 38, 13, 24, 48}), a_case.Run(device, in)[0].values);
  in[0] = {1, 3, 2, 4};
  a_case.transpose_a = true;
  EXPECT_EQ((Array{11, 22, 38, 13, 24, 48}), a_case.Run(device, in)[0].values);
  a_case.residual = Residual::kInPlace;
  EXPECT_EQ((Array{12, 23, 39, 14, 25, 49}), a_case.Run(device, in)[0].values);
}

// The products are each other's gradients. The nonlinear parts of the reference are compared with
// their definition here.
TEST(Matmul, GeluAndItsDerivativeByDefinition) {
  reference::ReferenceDevice<double> device;
  const double root_two_over_pi = std::sqrt(2 / std::acos(-1.0));
  for (double x = -6; x <= 6; x += 0.37) {
    for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
      MatmulCase a_case{.rows = 1, .columns = 1, .inner = 1, .gelu = form};
      const auto gelu = [&](double at) {
        return a_case.Run(device, {{at}, {1}, {0}, {0}, {0}})[1].values[0];
      };
      const double inner = root_two_over_pi * (x + 0.044715 * x * x * x);
      const double expected = form == GeluForm::kTanh ? x / 2 * (1 + std::tanh(inner))
                                                      : x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
      EXPECT_NEAR(expected, gelu(x), 1e-14) << x;
      const double difference = (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
      a_case.backward = true;
      EXPECT_NEAR(3 * difference, a_case.Run(device, {{3}, {1}, {0}, {0}, {x}})[0].values[0], 1e-8)
          << x;
    }
  }
}

/// Inputs: input, d_output, previous d_weight, previous d_bias.
struct WeightGradientCase {
  std::int64_t rows, in, out;
  bool has_bias = true;

  Arrays Inputs() const {
    return {RandomArray(rows * in, 1), RandomArray(rows * out, 2), RandomArray(in * out, 3),
            RandomArray(out, 4)};
  }
  template <class T>
  Outputs Run(Device<T>& device, const Arrays& arrays) const {
    const auto input = ToDevice<T>(device, arrays[0]), d_output = ToDevice<T>(device, arrays[1]);
    auto d_weight = ToDevice<Accumulator<T>>(device, arrays[2]),
         d_bias = ToDevice<Accumulator<T>>(device, arrays[3]);
    device.WeightGradient({.rows = rows,
                           .in = in,
                           .out = out,
                           .input = input.data(),
                           .d_output = d_output.data(),
                           .d_weight = d_weight.data(),
                           .d_bias = has_bias ? d_bias.data() : nullptr});
    return {{Op::kWeightGradient, ToHost(d_weight), true},
            {Op::kWeightGradient, ToHost(d_bias), true}};
  }
};

TEST(WeightGradient, AgreesWithTheReference) {
  for (const auto& [rows, in, out] : kShapes) {
    for (const bool has_bias : {false, true})
      ExpectAgreement(WeightGradientCase{rows, in, out, has_bias});
  }
}

TEST(WeightGradient, ByHand) {
  reference::ReferenceDevice<double> device;
  const Outputs outputs =
      WeightGradientCase{2, 2, 1}.Run(device, {{1, 2, 3, 4}, {5, 6}, {100, 200}, {300}});
  EXPECT_EQ((Array{123, 234}), outputs[0].values);
  EXPECT_EQ((Array{311}), outputs[1].values);
}

}  // namespace
}  // namespace adaptive_train::kernels::matmul_test
