// Gradients summed over real processes, whole and sparse: what is sent and what is kept add up to
// the input.
#include "runtime/exchange/gradient_reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/cpu/cpu_device.h"
#include "runtime/compress/count_sketch.h"
#include "tests/multi_process/forked_ranks.h"
#include "tests/multi_process/reducer_setting.h"
#include "tests/multi_process/shared_count.h"
#include "tests/sanitized.h"

namespace adaptive_train::gradient_reducer_test {
namespace {

/// One rank's part of a test: random gradients for each step, and sums kept in double.
struct Rank {
  explicit Rank(Group& c, bool feedback = true, std::size_t bucket = 3000,
                const std::vector<std::vector<int>>& nodes = {})
      : group(c),
        layout(kDims, StageSlice::Whole(kDims)),
        gradients(static_cast<std::size_t>(layout.size())),
        reducer(c, device, layout, gradients,
                {.feedback = feedback, .bucket_elements = bucket, .nodes = nodes}),
        given(gradients.size()),
        got(gradients.size()),
        random(static_cast<unsigned>(c.Rank() + 1)) {
    c.SetWays({.nodes = nodes});
  }

  /// Gradients of one step; elements differ in size as those of layers do.
  void Draw() {
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = normal(random) * (1.0f + static_cast<float>(i % 7));
  }
  /// Exchanges what is in `gradients`, in pieces of 1111 elements.
  bool Exchange() {
    for (std::size_t end = gradients.size(); end > 0;) {
      const std::size_t begin = end > 1111 ? end - 1111 : 0;
      reducer.Add(begin, end);
      end = begin;
    }
    RANK_REQUIRE(reducer.Finish(In(std::chrono::seconds(60))));
    return true;
  }
  /// The elements of the token matrix, the first of the arena.
  std::size_t Tokens() const { return static_cast<std::size_t>(layout.Find("wte.weight")->count); }
  /// A step that sends the token matrix first; its late contribution is random as well. False if
  /// that is not allowed.
  bool EarlyStep(bool updated = true) {
    RANK_REQUIRE(reducer.MayGoEarly(0, Tokens()));
    for (std::size_t i = 0; i < gradients.size(); ++i) given[i] += gradients[i];
    const std::span<float> rest = reducer.AddEarly(0, Tokens());
    RANK_REQUIRE(rest.size() == Tokens(), rest.size(), Tokens());
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < rest.size(); i += 3) {
      const float last = normal(random);
      rest[i] += last;
      given[i] += static_cast<double>(last);
    }
    RANK_REQUIRE(Exchange());
    if (updated) {
      for (std::size_t i = 0; i < gradients.size(); ++i) got[i] += gradients[i];
    }
    reducer.Settle(updated);
    return true;
  }
  /// A step that is made, or skipped, in which case only the residuals keep its gradients.
  bool Step(bool updated = true) {
    for (std::size_t i = 0; i < gradients.size(); ++i) given[i] += gradients[i];
    RANK_REQUIRE(Exchange());
    if (updated) {
      for (std::size_t i = 0; i < gradients.size(); ++i) got[i] += gradients[i];
    }
    reducer.Settle(updated);
    return true;
  }
  /// Whether the sum of all inputs is what the ranks got plus what they still hold, within
  /// `tolerance` of float32's rounding over that many steps.
  bool Conserved(double tolerance) {
    std::vector<double> total(given);
    for (std::size_t i = 0; i < total.size(); ++i)
      total[i] -= static_cast<double>(reducer.Residuals()[i]);
    RANK_REQUIRE(group.AllReduce(Purpose::kStatistic, std::span<double>(total))
                     .Wait(In(std::chrono::seconds(60))));
    for (std::size_t i = 0; i < total.size(); ++i) {
      RANK_REQUIRE(std::abs(total[i] - got[i]) <= tolerance, std::abs(total[i] - got[i]),
                   tolerance);
    }
    return true;
  }

  Group& group;
  const ParameterLayout layout;
  kernels::cpu::CpuDevice<float> device{1};
  std::vector<float> gradients;
  GradientReducer<float> reducer;
  std::vector<double> given, got;
  std::mt19937 random;
};

TEST(GradientReducer, SumsWhateverTheRangesAreCutInto) {
  Ranks ranks(3, [](Group& c) {
    Rank rank(c, false, 100);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < rank.gradients.size(); ++i)
        rank.gradients[i] = static_cast<float>(i) + static_cast<float>(c.Rank());
      RANK_REQUIRE(rank.Exchange());
      for (std::size_t i = 0; i < rank.gradients.size(); ++i) {
        RANK_REQUIRE(rank.gradients[i] == static_cast<float>(3 * i + 3), rank.gradients[i],
                     static_cast<float>(3 * i + 3));
      }
      rank.reducer.Settle(true);
      RANK_REQUIRE(rank.reducer.Figures().density == 1, rank.reducer.Figures().density);
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, SizesThatDoNotReachTheLargestGiveWayToBFloat16) {
  Ranks ranks(3, [](Group& c) {
    Rank rank(c);
    // Few rows of the token matrix are nonzero. In all other parts two ranks have almost nothing to
    // send.
    for (std::size_t i = 0; i < rank.gradients.size(); ++i) {
      const bool token = i < rank.Tokens();
      rank.gradients[i] = token ? (i / 32 % 20 == 0 ? 1.0f : 0.0f) : c.Rank() == 1 ? 1.0f : 1e-15f;
    }
    const std::vector<float> drawn = rank.gradients;
    rank.reducer.SetPolicy(Sparse(0.5, ValueFormat::kFloat8));
    RANK_REQUIRE(rank.Step());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const float sum = i < rank.Tokens() ? 3 * drawn[i] : 1;
      RANK_REQUIRE(std::abs(rank.gradients[i] - sum) <= 0.01f, std::abs(rank.gradients[i] - sum));
    }
    return rank.Conserved(1e-5);
  });
  EXPECT_TRUE(ranks.AllGood());
}

class SparseReducer : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SparseReducer,
                         testing::Values(Setting{1}, Setting{2}, Setting{3}, Setting{4}, Setting{7},
                                         Setting{4, 2}, Setting{6, 2}, Setting{6, 3}),
                         SettingName);

TEST_P(SparseReducer, WhatIsSentAndWhatIsKeptAddUp) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    Rank rank(c, true, 3000, GetParam().Nodes());
    const int steps = kSanitized ? 25 : c.Size() == 3 ? 1000 : 130;
    for (int step = 0; step < steps; ++step) {
      // Densities change, layers are sometimes whole, and sometimes everything is sent.
      ExchangePolicy policy = Sparse(step % 3 == 0 ? 0.05 : 0.2,
                                     step % 4 < 2 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16);
      if (step % 10 == 4) policy.density[1].reset();
      if (step % 100 == 24) policy = Sparse(1);
      policy.sketch = step % 5 == 3;
      if (step % 6 == 2) policy = Sparse(1, ValueFormat::kInt4);
      policy.zstd = step % 4 == 2;
      rank.reducer.SetPolicy(policy);
      rank.Draw();
      RANK_REQUIRE(rank.Step());
    }
    return rank.Conserved(0.05);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(SparseReducer, AllRanksGetTheSameBitsAndTheSharesAskedFor) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    Rank rank(c, true, 3000, GetParam().Nodes());
    rank.reducer.SetPolicy(Sparse(0.1));
    for (int step = 0; step < 5; ++step) {
      rank.Draw();
      RANK_REQUIRE(rank.Step());
      RANK_REQUIRE(c.Size() == 1 || std::abs(rank.reducer.Figures().density - 0.13) <= 0.04,
                   rank.reducer.Figures().density);
      std::vector<double> sums(2 * rank.gradients.size());
      for (std::size_t i = 0; i < rank.gradients.size(); ++i) {
        const double x = static_cast<double>(rank.gradients[i]);
        sums[2 * i] = x;
        sums[2 * i + 1] = x * x;
      }
      const std::vector<double> own(sums);
      RANK_REQUIRE(c.AllReduce(Purpose::kStatistic, std::span<double>(sums))
                       .Wait(In(std::chrono::seconds(60))));
      for (std::size_t i = 0; i < own.size(); ++i) {
        RANK_REQUIRE(std::abs(sums[i] - own[i] * c.Size()) <= 1e-9 * std::abs(sums[i]),
                     std::abs(sums[i] - own[i] * c.Size()), 1e-9 * std::abs(sums[i]));
      }
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(SparseReducer, InFourBitsAllOfItIsSentAndAllRanksGetTheSameBits) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    Rank rank(c, true, 3000, GetParam().Nodes());
    rank.reducer.SetPolicy(Sparse(1, ValueFormat::kInt4));
    for (int step = 0; step < 20; ++step) {
      rank.Draw();
      RANK_REQUIRE(rank.Step());
      RANK_REQUIRE(rank.reducer.Figures().density == 1, rank.reducer.Figures().density);
      std::vector<double> sums(rank.gradients.begin(), rank.gradients.end());
      const std::vector<double> own(sums);
      RANK_REQUIRE(c.AllReduce(Purpose::kStatistic, std::span<double>(sums))
                       .Wait(In(std::chrono::seconds(60))));
      for (std::size_t i = 0; i < own.size(); ++i)
        RANK_REQUIRE(std::abs(sums[i] - own[i] * c.Size()) <= 1e-9 * std::abs(sums[i]), sums[i],
                     own[i]);
    }
    return rank.Conserved(0.02);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(SparseReducer, WhatGoesEarlyAndWhatComesLastOfItAddUp) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    Rank rank(c, true, 3000, GetParam().Nodes());
    const bool may = c.Size() > 1 && GetParam().per_node == 1;
    for (int step = 0; step < (kSanitized ? 21 : 60); ++step) {
      ExchangePolicy policy =
          Sparse(0.1, step % 4 < 2 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16);
      policy.sketch = step % 5 == 3;
      if (step % 5 == 4) policy = Sparse(1, ValueFormat::kInt4);
      if (step % 7 == 4) policy.density[1].reset();  // of another layer
      const bool early = may && step % 3 != 0;
      rank.reducer.SetPolicy(policy);
      rank.Draw();
      RANK_REQUIRE(rank.reducer.MayGoEarly(0, rank.Tokens()) == may,
                   rank.reducer.MayGoEarly(0, rank.Tokens()), may);
      const bool updated = c.Size() == 1 || step % 7 != 5;  // what is summed whole is dropped
      RANK_REQUIRE(early ? rank.EarlyStep(updated) : rank.Step(updated));
    }
    return rank.Conserved(0.02);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, WhatComesLastAndIsNotFiniteSpoilsNoLaterStep) {
  Ranks ranks(2, [](Group& c) {
    Rank rank(c);
    rank.reducer.SetPolicy(Sparse(0.1));
    rank.Draw();
    const std::span<float> rest = rank.reducer.AddEarly(0, rank.Tokens());
    if (c.Rank() == 1) rest[5] = std::numeric_limits<float>::infinity();
    RANK_REQUIRE(rank.Exchange());
    rank.reducer.Settle(false);  // for other elements of that backward
    rank.reducer.SetPolicy({});
    rank.Draw();
    RANK_REQUIRE(rank.Exchange());
    rank.reducer.Settle(true);
    return std::ranges::all_of(rank.gradients, [](float x) { return std::isfinite(x); });
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, OnlyWhatIsCompressedAndKeptMayGoEarly) {
  Ranks ranks(2, [](Group& c) {
    Rank rank(c);
    const auto may = [&](const ExchangePolicy& policy) {
      rank.reducer.SetPolicy(policy);
      return rank.reducer.MayGoEarly(0, rank.Tokens());
    };
    ExchangePolicy whole_layer = Sparse(0.1), forgetful = Sparse(0.1);
    whole_layer.density[0].reset();
    forgetful.keep = 0.9;
    return may(Sparse(0.1)) && may(Sparse(1, ValueFormat::kInt4)) && !may({}) && !may(Sparse(1)) &&
           !may(whole_layer) && !may(forgetful);
  });
  EXPECT_TRUE(ranks.AllGood());
}

// A checkpoint from other nodes.
TEST(GradientReducer, ResidualsOfWhatOthersOnTheNodeSelectAreNotLost) {
  Ranks ranks(4, [](Group& c) {
    Rank rank(c, true, 3000, Setting{4, 2}.Nodes());
    for (std::size_t i = 0; i < rank.gradients.size(); ++i) {
      rank.reducer.Residuals()[i] = static_cast<float>(i % 5) + static_cast<float>(c.Rank());
      rank.given[i] = static_cast<double>(rank.reducer.Residuals()[i]);
    }
    rank.reducer.ResidualsRestored();
    rank.reducer.SetPolicy(Sparse(0.1));
    for (int step = 0; step < 5; ++step) {
      rank.Draw();
      RANK_REQUIRE(rank.Step());
    }
    return rank.Conserved(0.01);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, ALostRankEndsTheExchangeInsideNodes) {
  SharedCount ended;
  Ranks ranks(4, [&ended](Group& c) {
    Rank rank(c, true, 3000, Setting{4, 2}.Nodes());
    rank.reducer.SetPolicy(Sparse(0.1));
    // UCX 1.13 aborts a rank that connects to one which ends meanwhile: all are connected before.
    rank.Draw();
    RANK_REQUIRE(rank.Step());
    ended.Meet(4);
    rank.Draw();
    if (c.Rank() == 3) return true;  // and its process ends
    for (std::size_t end = rank.gradients.size(); end > 0;) {
      const std::size_t begin = end > 1111 ? end - 1111 : 0;
      rank.reducer.Add(begin, end);
      end = begin;
    }
    const auto done = rank.reducer.Finish(In(std::chrono::seconds(3)));
    RANK_REQUIRE(!done);
    RANK_REQUIRE(!done.error().cause.empty());
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, TurningCompressionOffSendsWhatWasHeldBack) {
  Ranks ranks(4, [](Group& c) {
    Rank rank(c);
    rank.reducer.SetPolicy(Sparse(0.05));
    for (int step = 0; step < 20; ++step) {
      rank.Draw();
      RANK_REQUIRE(rank.Step());
    }
    rank.reducer.SetPolicy({});
    rank.Draw();
    RANK_REQUIRE(rank.Step());
    for (float residual : rank.reducer.Residuals()) {
      RANK_REQUIRE(residual == 0, residual);
    }
    return rank.Conserved(0.01);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, ASkippedStepLosesNothingOfFiniteRanks) {
  Ranks ranks(3, [](Group& c) {
    Rank rank(c);
    for (int step = 0; step < 30; ++step) {
      ExchangePolicy policy = Sparse(0.1);
      policy.sketch = step >= 10 && step < 20;
      policy.format = step >= 20 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16;
      if (step % 10 >= 5 && !policy.sketch) policy = Sparse(1, ValueFormat::kInt4);
      policy.zstd = step % 2 == 1;
      rank.reducer.SetPolicy(policy);
      rank.Draw();
      const bool skipped = step % 5 == 2;
      if (!skipped) {
        RANK_REQUIRE(rank.Step());
        continue;
      }
      // Only rank 1 has a gradient that is not finite: all ranks must see it, in the same place.
      const std::size_t bad = rank.gradients.size() / 2;
      if (c.Rank() == 1) {
        rank.gradients[bad] = std::numeric_limits<float>::infinity();
        rank.given[bad] = std::numeric_limits<double>::quiet_NaN();
      }
      RANK_REQUIRE(rank.Step(false));
      bool seen = false;
      for (float value : rank.gradients) seen = seen || !std::isfinite(value);
      RANK_REQUIRE(seen);
      for (float residual : rank.reducer.Residuals()) {
        RANK_REQUIRE(std::isfinite(residual));
      }
      // Rank 1 starts over with that one element.
      if (c.Rank() == 1) rank.given[bad] = 0;
      rank.got[bad] = rank.given[bad] = 0;
      rank.reducer.Residuals()[bad] = 0;
    }
    return rank.Conserved(0.01);
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// Of a step's buckets, all elements of which are selected, those whose sketch cannot be peeled. A
/// step takes a lane for each bucket.
int Unpeeled(const GradientBuckets& buckets, std::size_t step) {
  int count = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto lane = static_cast<std::int64_t>(step * buckets.size() + i);
    const std::uint64_t seed = SketchSeed(static_cast<std::uint32_t>(i), lane);
    count += CountSketch(buckets[i].size(), seed).peels() ? 0 : 1;
  }
  return count;
}

TEST(GradientReducer, CountsTheSketchesThatCannotBePeeled) {
  Ranks ranks(2, [](Group& c) {
    Rank rank(c, true, 50);
    ExchangePolicy policy = Sparse(1);
    policy.sketch = true;
    rank.reducer.SetPolicy(policy);
    int steps_with = 0, steps_without = 0;
    for (std::size_t step = 0; step < 10; ++step) {
      rank.Draw();
      RANK_REQUIRE(rank.Step(step % 3 != 2));  // a skipped step counts as well
      const int expected = Unpeeled(rank.reducer.Buckets(), step);
      RANK_REQUIRE(rank.reducer.Figures().unpeeled == expected, step,
                   rank.reducer.Figures().unpeeled, expected);
      ++(expected > 0 ? steps_with : steps_without);
    }
    RANK_REQUIRE(steps_with > 0 && steps_without > 0, steps_with, steps_without);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, ResidualsScaleWithTheLoss) {
  Ranks ranks(2, [](Group& c) {
    Rank rank(c);
    rank.reducer.SetPolicy(Sparse(0.1));
    rank.Draw();
    RANK_REQUIRE(rank.Step());
    const std::vector<float> before(rank.reducer.Residuals().begin(),
                                    rank.reducer.Residuals().end());
    rank.reducer.Rescale(0.5f);
    for (std::size_t i = 0; i < before.size(); ++i) {
      RANK_REQUIRE(rank.reducer.Residuals()[i] == before[i] / 2, rank.reducer.Residuals()[i],
                   before[i] / 2);
    }
    rank.reducer.ForgetResiduals();
    for (float residual : rank.reducer.Residuals()) {
      RANK_REQUIRE(residual == 0, residual);
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// What other ranks held back before the run went on with one.
TEST(GradientReducer, TheNextUpdateOfASingleRankTakesResidualsOnce) {
  Ranks ranks(1, [](Group& c) {
    Rank rank(c, false);
    const std::span<float> residuals = rank.reducer.ResidualsToTake();
    RANK_REQUIRE(residuals.size() == rank.gradients.size());
    std::fill(residuals.begin(), residuals.end(), 0.5F);
    rank.reducer.ResidualsRestored();
    const auto sum_of_ones = [&](bool updated) {
      std::fill(rank.gradients.begin(), rank.gradients.end(), 1.0F);
      if (!rank.Exchange()) return -1.0F;
      const float sum = rank.gradients.back();
      rank.reducer.Settle(updated);
      return sum;
    };
    RANK_REQUIRE(sum_of_ones(false) == 1.5F);  // a skipped step takes nothing
    RANK_REQUIRE(rank.reducer.Residuals()[0] == 0.5F);
    RANK_REQUIRE(sum_of_ones(true) == 1.5F);
    RANK_REQUIRE(rank.reducer.Residuals().empty());
    RANK_REQUIRE(sum_of_ones(true) == 1.0F);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train::gradient_reducer_test
