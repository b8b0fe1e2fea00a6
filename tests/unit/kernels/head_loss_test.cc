// Logits, cross-entropy and its gradients.
#include "kernels/head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::head_loss_test {
namespace {

/// Inputs: input, weight, bias, previous d_weight, previous d_bias. Outputs: losses, d_input,
/// d_weight, d_bias.
struct HeadLossCase {
  std::int64_t rows, columns, vocab;
  bool has_bias = false, gradients = true;
  std::int64_t rows_without_target = 0;  // one in this many; 0: none
  double gradient_scale = 3;
  double input_scale = 1;  // of the inputs, and so of logits

  Arrays Inputs() const {
    Arrays in{RandomArray(rows * columns, 1), RandomArray(vocab * columns, 2),
              RandomArray(vocab, 3), RandomArray(vocab * columns, 4), RandomArray(vocab, 5)};
    for (double& value : in[0]) value *= input_scale;
    return in;
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
            {Op::kHeadGradient, ToHost(d_input)},
            {Op::kHeadGradient, ToHost(d_weight), true},
            {Op::kHeadGradient, ToHost(d_bias), true}};
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
          if (SlowDevice() && rows > 100 && !(has_bias && gradients && without_target > 1))
            continue;
          // Rounded logits are off by more the larger they are.
          HeadLossCase a_case{rows, columns, vocab, has_bias, gradients, without_target};
          ExpectAgreementIn<float>("float", a_case);
          a_case.input_scale = 1 / std::sqrt(static_cast<double>(columns));
          ExpectAgreementIn<BFloat16>("bfloat16", a_case);
          ExpectAgreementIn<Float16>("float16", a_case);
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

/// The same case with its vocabulary shared by ranks, one after the other on one device: once to
/// learn what each adds to every sum, then again with the sums. Outputs: of each rank losses and its
/// part of d_input; d_weight and d_bias of all.
struct SharedHeadLossCase {
  HeadLossCase whole;
  std::int64_t ranks;

  Arrays Inputs() const { return whole.Inputs(); }
  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    std::vector<std::vector<Accumulator<T>>> sums;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::size_t calls = 0;
      RunRank<T>(device, in, rank, [&](std::span<Accumulator<T>> values) {
        if (rank == 0) sums.emplace_back(values.size());
        ASSERT_LT(calls, sums.size());
        ASSERT_EQ(values.size(), sums[calls].size());
        for (std::size_t i = 0; i < values.size(); ++i) sums[calls][i] += values[i];
        ++calls;
      });
      EXPECT_EQ(calls, sums.size());
    }
    Outputs all;
    Array d_weight, d_bias;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      auto next = sums.begin();
      Outputs of = RunRank<T>(device, in, rank, [&](std::span<Accumulator<T>> values) {
        std::copy(next->begin(), next->end(), values.begin());
        ++next;
      });
      d_weight.insert(d_weight.end(), of[2].values.begin(), of[2].values.end());
      d_bias.insert(d_bias.end(), of[3].values.begin(), of[3].values.end());
      all.push_back(of[0]);
      all.push_back(of[1]);
    }
    all.push_back({Op::kHeadGradient, d_weight, true});
    all.push_back({Op::kHeadGradient, d_bias, true});
    return all;
  }

 private:
  template <class T>
  Outputs RunRank(Device<T>& device, const Arrays& in, std::int64_t rank,
                  const std::function<void(std::span<Accumulator<T>>)>& sum) const {
    const std::int64_t first = whole.vocab * rank / ranks,
                       vocab = whole.vocab * (rank + 1) / ranks - first;
    const auto rows_of = [&](const Array& all, std::int64_t columns) {
      return Array(all.begin() + first * columns, all.begin() + (first + vocab) * columns);
    };
    using Sum = Accumulator<T>;
    const auto input = ToDevice<T>(device, in[0]),
               weight = ToDevice<T>(device, rows_of(in[1], whole.columns)),
               bias = ToDevice<T>(device, rows_of(in[2], 1));
    const auto targets = TokensToDevice(device, whole.Targets());
    auto losses = Unread<Sum>(device, whole.rows);
    auto d_weight = ToDevice<Sum>(device, rows_of(in[3], whole.columns)),
         d_bias = ToDevice<Sum>(device, rows_of(in[4], 1));
    auto d_input = Unread<T>(device, whole.rows * whole.columns);
    device.HeadLoss({.rows = whole.rows,
                     .columns = whole.columns,
                     .vocab = vocab,
                     .input = input.data(),
                     .weight = weight.data(),
                     .bias = bias.data(),
                     .targets = targets.data(),
                     .losses = losses.data(),
                     .gradient_scale = whole.gradient_scale,
                     .d_input = d_input.data(),
                     .d_weight = d_weight.data(),
                     .d_bias = d_bias.data(),
                     .part = {.first = first, .rank = rank, .ranks = ranks, .sum = sum}});
    return {{Op::kHeadLoss, ToHost(losses), true},
            {Op::kHeadGradient, ToHost(d_input)},
            {Op::kHeadGradient, ToHost(d_weight), true},
            {Op::kHeadGradient, ToHost(d_bias), true}};
  }
};

// The vocabularies exceed a tile in every part, and in none; the rows exceed a chunk.
TEST(HeadLoss, OfASharedVocabularyIsThatOfTheWhole) {
  for (const auto& [rows, columns, vocab, ranks] : {std::array<std::int64_t, 4>{19, 7, 13, 2},
                                                    {11, 3, 1001, 2},
                                                    {1100, 2, 17, 4},
                                                    {5, 4, 3, 3}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << vocab << " over " << ranks);
    if (SlowDevice() && rows > 100) continue;
    const HeadLossCase whole{rows, columns, vocab, true, true, 4};
    const SharedHeadLossCase shared{whole, ranks};
    ExpectAgreement(shared);
    reference::ReferenceDevice<double> oracle;
    const Outputs expected = whole.Run(oracle, whole.Inputs());
    const Outputs actual = shared.Run(oracle, whole.Inputs());
    const Bound exact{1e-12, 1e-12};
    Array d_input(expected[1].values.size());
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      ExpectWithin(exact, expected[0].values, actual[2 * rank].values, "losses");
      for (std::size_t i = 0; i < d_input.size(); ++i) d_input[i] += actual[2 * rank + 1].values[i];
    }
    ExpectWithin(exact, expected[1].values, d_input, "d_input");
    ExpectWithin(exact, expected[2].values, actual[actual.size() - 2].values, "d_weight");
    ExpectWithin(exact, expected[3].values, actual.back().values, "d_bias");
  }
}

/// Equal logits of a large vocabulary: each gradient is one part in its size, which is below what
/// binary16 holds in full.
template <class T>
void ExpectSmallGradients(Device<T>& device) {
  HeadLossCase a_case{1, 1, 50257};
  a_case.gradient_scale = 1;
  Arrays in = a_case.Inputs();
  for (Array& array : in) array.assign(array.size(), 0.0);
  in[0][0] = 1;
  const Array d_weight = a_case.Run(device, in)[2].values;
  const auto target = static_cast<std::size_t>(a_case.Targets()[0]);
  const double probability = 1 / static_cast<double>(a_case.vocab);
  for (std::size_t v = 0; v < d_weight.size(); ++v) {
    const double expected = v == target ? probability - 1 : probability;
    // Logits are 0; the gradient may be rounded once.
    const double rounding = std::max(1e-4, RoundsOperands<T>() ? 1.01 * HalfUnit<T>() : 0);
    ASSERT_NEAR(d_weight[v], expected, rounding * std::abs(expected)) << v;
  }
}

TEST(HeadLoss, SmallGradientsHaveTheirBits) {
  TestedDevice<float> of_float(1);
  ExpectSmallGradients(of_float);
  TestedDevice<BFloat16> of_bfloat16(1);
  ExpectSmallGradients(of_bfloat16);
  TestedDevice<Float16> of_float16(1);
  ExpectSmallGradients(of_float16);
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
    TestedDevice<float> of_float(1);
    ExpectLossesThatAreNotFinite(of_float);
    TestedDevice<BFloat16> of_bfloat16(1);
    ExpectLossesThatAreNotFinite(of_bfloat16);
    TestedDevice<Float16> of_float16(1);
    ExpectLossesThatAreNotFinite(of_float16);
  });
}

}  // namespace
}  // namespace adaptive_train::kernels::head_loss_test
