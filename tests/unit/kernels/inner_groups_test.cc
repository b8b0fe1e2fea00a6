// Sums in groups: the same bits however many ranks share them.
#include "kernels/inner_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::inner_groups_test {
namespace {

constexpr std::int64_t kGroups = 8;
template <class T>
using NumbersOf = std::vector<T>;
using Numbers = NumbersOf<float>;

/// As the arrays of float32 have them, also where T is wider: the oracle's input is the device's.
template <class T>
Buffer<T> Given(Device<T>& device, const Array& values) {
  return ToDevice<T>(device, RoundedTo<float>({values})[0]);
}

std::vector<std::uint32_t> Bits(const Numbers& numbers) {
  std::vector<std::uint32_t> bits;
  for (const float number : numbers) bits.push_back(std::bit_cast<std::uint32_t>(number));
  return bits;
}

template <class T>
NumbersOf<T> ToNumbers(const Buffer<T>& buffer) {
  NumbersOf<T> numbers(buffer.size());
  buffer.CopyToHost(numbers);
  return numbers;
}

/// The ranks' results added as their groups continue.
template <class T>
NumbersOf<T> AddRanks(const std::vector<NumbersOf<T>>& of_ranks) {
  std::vector<NumbersOf<T>> places(4);
  const auto at = [&](std::int64_t place) -> NumbersOf<T>& {
    return places[static_cast<std::size_t>(place)];
  };
  AddTree(
      0, std::ssize(of_ranks), 0,
      [&](std::int64_t rank, std::int64_t place) {
        at(place) = of_ranks[static_cast<std::size_t>(rank)];
      },
      [&](std::int64_t from, std::int64_t to) {
        for (std::size_t i = 0; i < at(to).size(); ++i) at(to)[i] += at(from)[i];
      });
  return places[0];
}

/// Calls body(device) with each device that computes in float32: of every instruction set and
/// the matrix unit, with one and with several threads; and with the reference.
void OnEveryDevice(const std::function<void(Device<float>&)>& body) {
  OnEveryInstructionSet([&](const std::string& name) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message() << name << ", " << threads << " threads");
      TestedDevice<float> device(threads);
      body(device);
    }
  });
  SCOPED_TRACE("reference");
  reference::ReferenceDevice<float> device;
  body(device);
}

TEST(InnerGroups, OfARanksPartAreThoseOfTheWhole) {
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    for (std::int64_t of_rank = 0; of_rank < 40; ++of_rank) {
      const std::int64_t groups = kGroups / ranks, whole = ranks * of_rank;
      for (std::int64_t i = 0; i <= kGroups; ++i) {
        const std::int64_t rank = std::min(i / groups, ranks - 1);
        EXPECT_EQ(GroupBegin(whole, i, kGroups),
                  rank * of_rank + GroupBegin(of_rank, i - rank * groups, groups));
      }
    }
  }
}

TEST(InnerGroups, AreAddedAsABalancedTree) {
  std::vector<std::string> places(4);
  const auto at = [&](std::int64_t place) -> std::string& {
    return places[static_cast<std::size_t>(place)];
  };
  const auto tree = [&](std::int64_t first, std::int64_t count) {
    AddTree(
        first, count, 0,
        [&](std::int64_t leaf, std::int64_t place) { at(place) = std::to_string(leaf); },
        [&](std::int64_t from, std::int64_t to) { at(to) = "(" + at(to) + at(from) + ")"; });
    return places[0];
  };
  EXPECT_EQ("3", tree(3, 1));
  EXPECT_EQ("(01)", tree(0, 2));
  EXPECT_EQ("(((01)(23))((45)(67)))", tree(0, 8));
  EXPECT_EQ("((45)(67))", tree(4, 4));
  EXPECT_EQ(0, TreeDepth(1));
  EXPECT_EQ(3, TreeDepth(8));
}

/// A product whose inner dimension ranks share: the output of a layer by rows of its weight, or,
/// with transpose_b, the gradient of the input of one by columns.
struct SharedProduct {
  std::int64_t rows, columns;
  std::vector<std::int64_t> runs;  // of inner
  bool transpose_b = false, has_bias = false, has_residual = false, in_place = false;

  std::int64_t Inner() const { return std::accumulate(runs.begin(), runs.end(), std::int64_t{0}); }

  /// Of inner, what a rank has.
  std::vector<std::int64_t> Own(std::int64_t rank, std::int64_t ranks) const {
    std::vector<std::int64_t> own;
    std::int64_t begin = 0;
    for (const std::int64_t run : runs) {
      for (std::int64_t k = run * rank / ranks; k < run * (rank + 1) / ranks; ++k)
        own.push_back(begin + k);
      begin += run;
    }
    return own;
  }

  template <class T>
  NumbersOf<T> OfRank(Device<T>& device, std::int64_t rank, std::int64_t ranks,
                      std::int64_t groups) const {
    const Array all_a = RandomArray(rows * Inner(), 1), all_b = RandomArray(Inner() * columns, 2),
                all_bias = RandomArray(columns, 3), all_residual = RandomArray(rows * columns, 4);
    const std::vector<std::int64_t> own = Own(rank, ranks);
    const auto inner = static_cast<std::int64_t>(own.size());
    Array a(static_cast<std::size_t>(rows * inner)), b(static_cast<std::size_t>(inner * columns));
    for (std::int64_t i = 0; i < inner; ++i) {
      const std::int64_t k = own[static_cast<std::size_t>(i)];
      for (std::int64_t row = 0; row < rows; ++row)
        a[static_cast<std::size_t>(row * inner + i)] =
            all_a[static_cast<std::size_t>(row * Inner() + k)];
      for (std::int64_t column = 0; column < columns; ++column)
        b[static_cast<std::size_t>(transpose_b ? column * inner + i : i * columns + column)] =
            all_b[static_cast<std::size_t>(transpose_b ? column * Inner() + k
                                                       : k * columns + column)];
    }
    std::vector<std::int64_t> own_runs;
    for (const std::int64_t run : runs) own_runs.push_back(run / ranks);
    const auto on_a = Given<T>(device, a), on_b = Given<T>(device, b),
               bias = Given<T>(device, all_bias), residual = Given<T>(device, all_residual);
    auto c = in_place ? Given<T>(device, all_residual) : Unread<T>(device, rows * columns);
    MatmulArguments<T> x{.rows = rows,
                         .columns = columns,
                         .inner = inner,
                         .a = on_a.data(),
                         .b = on_b.data(),
                         .transpose_b = transpose_b,
                         .c = c.data()};
    if (groups > 0) x.groups = {groups, own_runs};
    if (rank == 0 && has_bias) x.bias = bias.data();
    if (rank == 0 && has_residual) x.residual = in_place ? c.data() : residual.data();
    device.Matmul(x);
    return ToNumbers(c);
  }

  template <class T>
  NumbersOf<T> Shared(Device<T>& device, std::int64_t ranks, bool in_groups) const {
    std::vector<NumbersOf<T>> of_ranks;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      of_ranks.push_back(OfRank(device, rank, ranks, in_groups ? kGroups / ranks : 0));
    return AddRanks<T>(of_ranks);
  }
};

/// The same bits on 1 rank and on 2, 4 and 8 where they divide every run; and the right numbers.
void ExpectSameBits(const SharedProduct& product) {
  reference::ReferenceDevice<double> oracle;
  const Array expected = product.Shared(oracle, 1, false);
  OnEveryDevice([&](Device<float>& device) {
    const Numbers one = product.Shared(device, 1, true);
    ExpectWithin(Tolerance<float>(Op::kMatmul), expected, Array(one.begin(), one.end()), "product");
    for (const std::int64_t ranks : {2, 4, 8}) {
      const auto divides = [ranks](std::int64_t run) { return run % ranks == 0; };
      if (!std::all_of(product.runs.begin(), product.runs.end(), divides)) continue;
      EXPECT_EQ(Bits(one), Bits(product.Shared(device, ranks, true)))
          << ranks << " ranks, inner " << product.Inner() << ", " << product.rows << " x "
          << product.columns;
    }
  });
}

// Groups of one, of odd lengths, of whole tiles of the matrix unit and of more than a panel; strips
// of several rows and columns of tiles.
TEST(InnerGroups, AForwardOfSharedRowsHasTheBitsOfOneRank) {
  for (const std::int64_t inner : {8, 12, 40, 256, 1000, 3200}) {
    for (const bool has_bias : {false, true}) {
      ExpectSameBits({.rows = 7, .columns = 33, .runs = {inner}, .has_bias = has_bias});
      ExpectSameBits({.rows = 5,
                      .columns = 18,
                      .runs = {inner},
                      .has_bias = has_bias,
                      .has_residual = true,
                      .in_place = has_bias});
    }
  }
  ExpectSameBits(
      {.rows = 201, .columns = 400, .runs = {88}, .has_bias = true, .has_residual = true});
}

// Queries, keys and values, of which each rank has a part; gate and up.
TEST(InnerGroups, AGradientOfSharedColumnsHasTheBitsOfOneRank) {
  for (const std::vector<std::int64_t>& runs : {std::vector<std::int64_t>{8},
                                                {12},
                                                {72},
                                                {96, 96, 96},
                                                {40, 24, 24},
                                                {44, 20, 20},
                                                {1000, 8, 8},
                                                {200, 200}}) {
    for (const bool has_residual : {false, true}) {
      for (const bool in_place : {false, true}) {
        ExpectSameBits({.rows = 9,
                        .columns = 35,
                        .runs = runs,
                        .transpose_b = true,
                        .has_residual = has_residual,
                        .in_place = in_place && has_residual});
      }
    }
  }
  ExpectSameBits({.rows = 197, .columns = 390, .runs = {48, 24, 24}, .transpose_b = true});
}

TEST(InnerGroups, ThreadsDoNotChangeTheBits) {
  const SharedProduct product{.rows = 500, .columns = 800, .runs = {264}, .has_bias = true};
  OnEveryInstructionSet([&](const std::string& name) {
    TestedDevice<float> one(1), several(3);
    EXPECT_EQ(Bits(product.Shared(one, 1, true)), Bits(product.Shared(several, 1, true))) << name;
  });
}

// Otherwise the tests above would show nothing.
TEST(InnerGroups, WithoutThemSharedSumsDiffer) {
  const SharedProduct product{.rows = 9, .columns = 35, .runs = {1000}};
  OnEveryDevice([&](Device<float>& device) {
    EXPECT_NE(Bits(product.Shared(device, 1, false)), Bits(product.Shared(device, 2, false)));
  });
}

/// What a head's loss and its gradients are on several ranks.
template <class T>
struct SharedLoss {
  NumbersOf<T> losses, d_input, d_weight, d_bias;
};

/// A head whose vocabulary ranks share, one after the other on one device: once to learn what each
/// adds to every sum, then again with the sums.
struct SharedHead {
  std::int64_t rows, columns, vocab;

  template <class T>
  SharedLoss<T> On(Device<T>& device, std::int64_t ranks, bool in_groups) const {
    const auto first_of = [&](std::int64_t rank) { return vocab * rank / ranks; };
    std::vector<NumbersOf<T>> sums;
    const auto learn = [&](std::size_t call, std::span<T> values) {
      if (call == sums.size()) sums.emplace_back(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sums[call][i] += values[i];
    };
    const auto give = [&](std::size_t call, std::span<T> values) {
      std::copy(sums.at(call).begin(), sums.at(call).end(), values.begin());
    };
    std::vector<NumbersOf<T>> d_inputs;
    SharedLoss<T> all;
    for (const bool again : {false, true}) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        std::size_t calls = 0;
        const SharedLoss<T> own = OfRank<T>(
            device,
            {.first = first_of(rank),
             .rank = rank,
             .ranks = ranks,
             .groups = in_groups ? kGroups / ranks : 0,
             .whole = vocab,
             .sum = [&](std::span<T> v) { again ? give(calls++, v) : learn(calls++, v); }},
            first_of(rank + 1) - first_of(rank));
        if (!again) continue;
        if (rank > 0) {
          EXPECT_EQ(all.losses, own.losses);
        }
        all.losses = own.losses;
        d_inputs.push_back(own.d_input);
        all.d_weight.insert(all.d_weight.end(), own.d_weight.begin(), own.d_weight.end());
        all.d_bias.insert(all.d_bias.end(), own.d_bias.begin(), own.d_bias.end());
      }
    }
    all.d_input = AddRanks<T>(d_inputs);
    return all;
  }

 private:
  template <class T>
  SharedLoss<T> OfRank(Device<T>& device, const VocabularyPart<T>& part,
                       std::int64_t entries) const {
    const auto rows_of = [&](const Array& whole, std::int64_t width) {
      return Given<T>(device, Array(whole.begin() + part.first * width,
                                    whole.begin() + (part.first + entries) * width));
    };
    std::vector<std::int32_t> tokens = RandomTokens(rows, vocab);
    for (std::size_t i = 0; i < tokens.size(); i += 5) tokens[i] = -1;
    const auto input = Given<T>(device, RandomArray(rows * columns, 1)),
               weight = rows_of(RandomArray(vocab * columns, 2), columns),
               bias = rows_of(RandomArray(vocab, 3), 1);
    const auto targets = TokensToDevice(device, tokens);
    auto losses = Unread<T>(device, rows), d_input = Unread<T>(device, rows * columns),
         d_weight = rows_of(RandomArray(vocab * columns, 4), columns),
         d_bias = rows_of(RandomArray(vocab, 5), 1);
    device.HeadLoss({.rows = rows,
                     .columns = columns,
                     .vocab = entries,
                     .input = input.data(),
                     .weight = weight.data(),
                     .bias = bias.data(),
                     .targets = targets.data(),
                     .losses = losses.data(),
                     .gradient_scale = 3,
                     .d_input = d_input.data(),
                     .d_weight = d_weight.data(),
                     .d_bias = d_bias.data(),
                     .part = part});
    return {ToNumbers(losses), ToNumbers(d_input), ToNumbers(d_weight), ToNumbers(d_bias)};
  }
};

// Vocabularies of several tiles in a group, that no number of ranks divides; smaller than a tile;
// with groups that are empty. Rows of several chunks.
TEST(InnerGroups, AHeadOfASharedVocabularyHasTheBitsOfOneRank) {
  for (const SharedHead& head : {SharedHead{19, 7, 13},
                                 {11, 3, 3},
                                 {23, 20, 6247},
                                 {1100, 1, 3},
                                 {1100, 2, 17},
                                 {30, 390, 100},
                                 {410, 3, 401}}) {
    SCOPED_TRACE(testing::Message() << head.rows << " rows, vocabulary " << head.vocab);
    if (SlowDevice() && head.rows * head.vocab > 4000) continue;
    reference::ReferenceDevice<double> oracle;
    const SharedLoss<double> expected = head.On(oracle, 1, false);
    OnEveryDevice([&](Device<float>& device) {
      const SharedLoss<float> one = head.On(device, 1, true);
      const auto near = [](const Array& right, const Numbers& actual, const char* what) {
        ExpectWithin(Tolerance<float>(Op::kHeadLoss), right, Array(actual.begin(), actual.end()),
                     what);
      };
      near(expected.losses, one.losses, "losses");
      near(expected.d_input, one.d_input, "d_input");
      near(expected.d_weight, one.d_weight, "d_weight");
      near(expected.d_bias, one.d_bias, "d_bias");
      for (const std::int64_t ranks : {2, 4, 8}) {
        if (head.vocab < ranks) continue;
        const SharedLoss<float> several = head.On(device, ranks, true);
        EXPECT_EQ(Bits(one.losses), Bits(several.losses)) << ranks;
        EXPECT_EQ(Bits(one.d_input), Bits(several.d_input)) << ranks;
        EXPECT_EQ(Bits(one.d_weight), Bits(several.d_weight)) << ranks;
        EXPECT_EQ(Bits(one.d_bias), Bits(several.d_bias)) << ranks;
      }
    });
  }
}

TEST(InnerGroups, WithoutThemASharedHeadDiffers) {
  const SharedHead head{23, 20, SlowDevice() ? 800 : 6247};
  OnEveryDevice([&](Device<float>& device) {
    const SharedLoss<float> one = head.On(device, 1, false), two = head.On(device, 2, false);
    EXPECT_NE(Bits(one.d_input), Bits(two.d_input));
    // The sums of exponentials: a loss may be rounded to the same number.
    EXPECT_NE(Bits(one.d_weight), Bits(two.d_weight));
  });
}

/// The first rank adds positions and types; the token's row is on one of two.
Numbers SharedEmbedding(Device<float>& device, std::int64_t ranks, bool token_last) {
  constexpr std::int64_t kVocab = 11, kColumns = 19, kBatch = 2, kSequence = 8;
  const Array all = RandomArray(kVocab * kColumns, 1);
  const auto position = ToDevice<float>(device, RandomArray(kSequence * kColumns, 2)),
             type = ToDevice<float>(device, RandomArray(kColumns, 3));
  std::vector<Numbers> of_ranks;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t first = kVocab * rank / ranks, end = kVocab * (rank + 1) / ranks;
    std::vector<std::int32_t> tokens = RandomTokens(kBatch * kSequence, kVocab);
    for (std::int32_t& token : tokens)
      token = token < first || token >= end ? -1 : token - static_cast<std::int32_t>(first);
    const auto on_device = TokensToDevice(device, tokens);
    const auto weight = ToDevice<float>(
        device, Array(all.begin() + first * kColumns, all.begin() + end * kColumns));
    auto output = Unread<float>(device, kBatch * kSequence * kColumns);
    device.Embedding({.batch = kBatch,
                      .sequence = kSequence,
                      .columns = kColumns,
                      .tokens = on_device.data(),
                      .token_weight = weight.data(),
                      .position_weight = rank == 0 ? position.data() : nullptr,
                      .type_weight = rank == 0 ? type.data() : nullptr,
                      .token_last = token_last,
                      .output = output.data()});
    of_ranks.push_back(ToNumbers(output));
  }
  return AddRanks(of_ranks);
}

TEST(InnerGroups, AnEmbeddingOfASharedVocabularyHasTheBitsOfOneRank) {
  OnEveryDevice([](Device<float>& device) {
    const Numbers one = SharedEmbedding(device, 1, true);
    for (const std::int64_t ranks : {2, 4, 8})
      EXPECT_EQ(Bits(one), Bits(SharedEmbedding(device, ranks, true))) << ranks;
    EXPECT_NE(Bits(SharedEmbedding(device, 1, false)), Bits(SharedEmbedding(device, 8, false)));
  });
}

}  // namespace
}  // namespace adaptive_train::kernels::inner_groups_test
