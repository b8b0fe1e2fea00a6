// Gradients summed over real processes, whole and sparse: what is sent and what is kept back add up
// to what there was.
#include "runtime/exchange/gradient_reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "kernels/cpu/cpu_device.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train {
namespace {

using kernels::ValueFormat;

const ModelDims kDims{.layers = 2, .heads = 2, .hidden = 32, .sequence = 16, .vocab = 128};

/// How many ranks, and how many of them share a node: rank r is on node r modulo the nodes.
struct Setting {
  int ranks, per_node = 1;

  std::vector<std::vector<int>> Nodes() const {
    if (per_node == 1) return {};
    std::vector<std::vector<int>> nodes(static_cast<std::size_t>(ranks / per_node));
    for (int rank = 0; rank < ranks; ++rank)
      nodes[static_cast<std::size_t>(rank) % nodes.size()].push_back(rank);
    return nodes;
  }
};

std::string NameOf(const testing::TestParamInfo<Setting>& info) {
  const Setting& setting = info.param;
  return std::to_string(setting.ranks) +
         (setting.per_node == 1 ? "" : "By" + std::to_string(setting.per_node));
}

/// One rank's part of a test: gradients that are drawn anew in each step, and sums kept in double.
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
    return reducer.Finish(In(std::chrono::seconds(60))).has_value();
  }
  /// The elements of the tokens' matrix, the first of the arena.
  std::size_t Tokens() const { return static_cast<std::size_t>(layout.Find("wte.weight")->count); }
  /// A step of which the tokens' matrix goes first; what comes last of it is drawn as well. False
  /// where it may not.
  bool EarlyStep(bool updated = true) {
    if (!reducer.MayGoEarly(0, Tokens())) return false;
    for (std::size_t i = 0; i < gradients.size(); ++i) given[i] += gradients[i];
    const std::span<float> rest = reducer.AddEarly(0, Tokens());
    if (rest.size() != Tokens()) return false;
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < rest.size(); i += 3) {
      const float last = normal(random);
      rest[i] += last;
      given[i] += static_cast<double>(last);
    }
    if (!Exchange()) return false;
    if (updated) {
      for (std::size_t i = 0; i < gradients.size(); ++i) got[i] += gradients[i];
    }
    reducer.Settle(updated);
    return true;
  }
  /// A step that is made, or skipped and so without effect on the sums but for what stays.
  bool Step(bool updated = true) {
    for (std::size_t i = 0; i < gradients.size(); ++i) given[i] += gradients[i];
    if (!Exchange()) return false;
    if (updated) {
      for (std::size_t i = 0; i < gradients.size(); ++i) got[i] += gradients[i];
    }
    reducer.Settle(updated);
    return true;
  }
  /// Whether what all gave is what each got and all still hold, within `tolerance` of float32's
  /// roundings over so many steps.
  bool Conserved(double tolerance) {
    std::vector<double> total(given);
    for (std::size_t i = 0; i < total.size(); ++i)
      total[i] -= static_cast<double>(reducer.Residuals()[i]);
    if (!group.AllReduce(Purpose::kStatistic, std::span<double>(total))
             .Wait(In(std::chrono::seconds(60))))
      return false;
    for (std::size_t i = 0; i < total.size(); ++i) {
      if (!(std::abs(total[i] - got[i]) <= tolerance)) return false;
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

ExchangePolicy Sparse(double density, ValueFormat format = ValueFormat::kBFloat16) {
  ExchangePolicy policy;
  policy.density.assign(4, density);
  policy.format = format;
  return policy;
}

TEST(GradientReducer, SumsWhateverTheRangesAreCutInto) {
  Ranks ranks(3, [](Group& c) {
    Rank rank(c, false, 100);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < rank.gradients.size(); ++i)
        rank.gradients[i] = static_cast<float>(i) + static_cast<float>(c.Rank());
      if (!rank.Exchange()) return false;
      for (std::size_t i = 0; i < rank.gradients.size(); ++i) {
        if (rank.gradients[i] != static_cast<float>(3 * i + 3)) return false;
      }
      rank.reducer.Settle(true);
      if (rank.reducer.Figures().density != 1) return false;
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, SizesThatDoNotReachTheLargestGiveWayToBFloat16) {
  Ranks ranks(3, [](Group& c) {
    Rank rank(c);
    // Of the tokens' matrix few rows are not 0; of all else two ranks have next to nothing to give.
    for (std::size_t i = 0; i < rank.gradients.size(); ++i) {
      const bool token = i < rank.Tokens();
      rank.gradients[i] = token ? (i / 32 % 20 == 0 ? 1.0f : 0.0f) : c.Rank() == 1 ? 1.0f : 1e-15f;
    }
    const std::vector<float> drawn = rank.gradients;
    rank.reducer.SetPolicy(Sparse(0.5, ValueFormat::kFloat8));
    if (!rank.Step()) return false;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const float sum = i < rank.Tokens() ? 3 * drawn[i] : 1;
      if (std::abs(rank.gradients[i] - sum) > 0.01f) return false;
    }
    return rank.Conserved(1e-5);
  });
  EXPECT_TRUE(ranks.AllGood());
}

class SparseReducer : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SparseReducer,
                         testing::Values(Setting{1}, Setting{2}, Setting{3}, Setting{4}, Setting{7},
                                         Setting{4, 2}, Setting{6, 2}, Setting{6, 3}),
                         NameOf);

TEST_P(SparseReducer, WhatIsSentAndWhatIsKeptAddUp) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    Rank rank(c, true, 3000, GetParam().Nodes());
    const int steps = c.Size() == 3 ? 1000 : 130;
    for (int step = 0; step < steps; ++step) {
      // Densities change, layers are whole at times, and now and then all goes out.
      ExchangePolicy policy = Sparse(step % 3 == 0 ? 0.05 : 0.2,
                                     step % 4 < 2 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16);
      if (step % 10 == 4) policy.density[1].reset();
      if (step % 100 == 99) policy = Sparse(1);
      policy.sketch = step % 5 == 3;
      rank.reducer.SetPolicy(policy);
      rank.Draw();
      if (!rank.Step()) return false;
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
      if (!rank.Step()) return false;
      if (c.Size() > 1 && std::abs(rank.reducer.Figures().density - 0.13) > 0.04) return false;
      std::vector<double> sums(2 * rank.gradients.size());
      for (std::size_t i = 0; i < rank.gradients.size(); ++i) {
        const double x = static_cast<double>(rank.gradients[i]);
        sums[2 * i] = x;
        sums[2 * i + 1] = x * x;
      }
      const std::vector<double> own(sums);
      if (!c.AllReduce(Purpose::kStatistic, std::span<double>(sums))
               .Wait(In(std::chrono::seconds(60))))
        return false;
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (std::abs(sums[i] - own[i] * c.Size()) > 1e-9 * std::abs(sums[i])) return false;
      }
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(SparseReducer, WhatGoesEarlyAndWhatComesLastOfItAddUp) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    Rank rank(c, true, 3000, GetParam().Nodes());
    const bool may = c.Size() > 1 && GetParam().per_node == 1;
    for (int step = 0; step < 60; ++step) {
      ExchangePolicy policy =
          Sparse(0.1, step % 4 < 2 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16);
      policy.sketch = step % 5 == 3;
      if (step % 7 == 4) policy.density[1].reset();  // of another layer
      const bool early = may && step % 3 != 0;
      rank.reducer.SetPolicy(policy);
      rank.Draw();
      if (rank.reducer.MayGoEarly(0, rank.Tokens()) != may) return false;
      const bool updated = c.Size() == 1 || step % 7 != 5;  // what is summed whole is dropped
      if (!(early ? rank.EarlyStep(updated) : rank.Step(updated))) return false;
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
    if (!rank.Exchange()) return false;
    rank.reducer.Settle(false);  // for other elements of that backward
    rank.reducer.SetPolicy({});
    rank.Draw();
    if (!rank.Exchange()) return false;
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
    return may(Sparse(0.1)) && !may({}) && !may(Sparse(1)) && !may(whole_layer) && !may(forgetful);
  });
  EXPECT_TRUE(ranks.AllGood());
}

// A checkpoint that was written on other nodes.
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
      if (!rank.Step()) return false;
    }
    return rank.Conserved(0.01);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, ALostRankEndsTheExchangeInsideNodes) {
  Ranks ranks(4, [](Group& c) {
    Rank rank(c, true, 3000, Setting{4, 2}.Nodes());
    rank.reducer.SetPolicy(Sparse(0.1));
    rank.Draw();
    if (c.Rank() == 3) return true;  // and its process ends
    for (std::size_t end = rank.gradients.size(); end > 0;) {
      const std::size_t begin = end > 1111 ? end - 1111 : 0;
      rank.reducer.Add(begin, end);
      end = begin;
    }
    const auto done = rank.reducer.Finish(In(std::chrono::seconds(3)));
    return !done && !done.error().cause.empty();
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, TurningCompressionOffSendsWhatWasHeldBack) {
  Ranks ranks(4, [](Group& c) {
    Rank rank(c);
    rank.reducer.SetPolicy(Sparse(0.05));
    for (int step = 0; step < 20; ++step) {
      rank.Draw();
      if (!rank.Step()) return false;
    }
    rank.reducer.SetPolicy({});
    rank.Draw();
    if (!rank.Step()) return false;
    for (float residual : rank.reducer.Residuals()) {
      if (residual != 0) return false;
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
      policy.sketch = step >= 15;
      rank.reducer.SetPolicy(policy);
      rank.Draw();
      policy.format = step >= 20 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16;
      const bool skipped = step % 5 == 2;
      if (!skipped) {
        if (!rank.Step()) return false;
        continue;
      }
      // Rank 1 alone has a gradient that is none: all ranks must see it, in the same place.
      const std::size_t bad = rank.gradients.size() / 2;
      if (c.Rank() == 1) {
        rank.gradients[bad] = std::numeric_limits<float>::infinity();
        rank.given[bad] = std::numeric_limits<double>::quiet_NaN();
      }
      if (!rank.Step(false)) return false;
      bool seen = false;
      for (float value : rank.gradients) seen = seen || !std::isfinite(value);
      if (!seen) return false;
      for (float residual : rank.reducer.Residuals()) {
        if (!std::isfinite(residual)) return false;
      }
      // Of that one element rank 1 starts anew.
      if (c.Rank() == 1) rank.given[bad] = 0;
      rank.got[bad] = rank.given[bad] = 0;
      rank.reducer.Residuals()[bad] = 0;
    }
    return rank.Conserved(0.01);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(GradientReducer, ResidualsScaleWithTheLoss) {
  Ranks ranks(2, [](Group& c) {
    Rank rank(c);
    rank.reducer.SetPolicy(Sparse(0.1));
    rank.Draw();
    if (!rank.Step()) return false;
    const std::vector<float> before(rank.reducer.Residuals().begin(),
                                    rank.reducer.Residuals().end());
    rank.reducer.Rescale(0.5f);
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (rank.reducer.Residuals()[i] != before[i] / 2) return false;
    }
    rank.reducer.ForgetResiduals();
    for (float residual : rank.reducer.Residuals()) {
      if (residual != 0) return false;
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// One rank of an exchange of several micro-batches a step, whose gradients leave the arena.
struct ShardedRank {
  ShardedRank(Group& c, bool feedback, const Setting& setting)
      : group(c),
        layout(kDims, StageSlice::Whole(kDims)),
        gradients(static_cast<std::size_t>(layout.size())),
        reducer(c, device, layout, gradients,
                {.feedback = feedback,
                 .sharded = true,
                 .release = true,
                 .bucket_elements = 3000,
                 .nodes = setting.Nodes()}),
        given(gradients.size()),
        random(static_cast<unsigned>(c.Rank() + 1)) {
    c.SetWays({.nodes = setting.Nodes()});
    for (const GradientBucket& bucket : reducer.Buckets()) {
      const GradientChunk chunk = reducer.Buckets().ChunkOf(bucket, c.Rank());
      for (std::size_t i = chunk.begin; i < chunk.end; ++i) own.push_back(i);
    }
  }

  /// One backward after the other adds to what is in the arena, which has to be 0 by then. Rank r
  /// has r + 1 of the `micro_batches`, the last one at most all of them.
  bool Step(int micro_batches, bool updated = true) {
    std::normal_distribution<float> normal;
    for (int m = 0; m < micro_batches; ++m) {
      if (m <= group.Rank()) {
        for (std::size_t end = gradients.size(); end > 0;) {
          const std::size_t begin = end > 1111 ? end - 1111 : 0;
          for (std::size_t i = begin; i < end; ++i) {
            const float g = normal(random);
            gradients[i] += g;
            given[i] += static_cast<double>(g);
          }
          if (m == spoils) gradients[begin] = std::numeric_limits<float>::quiet_NaN();
          reducer.Add(begin, end);
          if (!reducer.Limit(4000, Soon())) return false;
          end = begin;
        }
      } else {
        reducer.AddNothing();
      }
      if (m + 1 < micro_batches && !reducer.FinishMicroBatch(Soon())) return false;
    }
    if (!reducer.Finish(Soon())) return false;
    if (!OthersAreGone()) return false;
    if (updated) {
      for (const std::size_t i : own) got[i] += static_cast<double>(gradients[i]);
    }
    reducer.Settle(updated);
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    return true;
  }
  bool OthersAreGone() const {
    std::vector<bool> mine(gradients.size());
    for (const std::size_t i : own) mine[i] = true;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (!mine[i] && gradients[i] != 0) return false;
    return true;
  }
  /// Owners got what all gave, less what all still hold.
  bool Conserved(double tolerance) {
    std::vector<double> total(given);
    for (std::size_t i = 0; i < reducer.Residuals().size(); ++i)
      total[i] -= static_cast<double>(reducer.Residuals()[i]);
    if (!group.AllReduce(Purpose::kStatistic, std::span<double>(total)).Wait(Soon())) return false;
    for (const std::size_t i : own)
      if (!(std::abs(total[i] - got[i]) <= tolerance)) return false;
    return true;
  }
  static Deadline Soon() { return In(std::chrono::seconds(60)); }

  Group& group;
  const ParameterLayout layout;
  kernels::cpu::CpuDevice<float> device{1};
  std::vector<float> gradients;
  GradientReducer<float> reducer;
  std::vector<std::size_t> own;
  std::vector<double> given;
  std::map<std::size_t, double> got;
  std::mt19937 random;
  int spoils = -1;  // the micro-batch that gives values that are not finite
};

class ShardedGradients : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedGradients,
                         testing::Values(Setting{2}, Setting{3}, Setting{4}, Setting{7},
                                         Setting{4, 2}, Setting{6, 3}),
                         NameOf);

TEST_P(ShardedGradients, OwnersGetTheSumsOfAllMicroBatchesAndOthersKeepNothing) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    ShardedRank rank(c, false, GetParam());
    for (int step = 0; step < 10; ++step)
      if (!rank.Step(1 + step % c.Size())) return false;
    return rank.reducer.Figures().density <= 1 && rank.Conserved(1e-4);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(ShardedGradients, WhatIsSentAndWhatIsKeptAddUpOverMicroBatchesAndSkippedSteps) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    ShardedRank rank(c, true, GetParam());
    for (int step = 0; step < 60; ++step) {
      ExchangePolicy policy =
          Sparse(0.1, step % 4 < 2 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16);
      // A skipped step drops what is summed whole.
      if (step % 14 == 4) policy.density[1].reset();
      policy.sketch = step % 5 == 3;
      rank.reducer.SetPolicy(policy);
      if (!rank.Step(1 + step % 3, step % 7 != 5)) return false;
    }
    return rank.Conserved(0.02);
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// A sum that is not finite held nothing of anyone, also where the step goes on to be skipped.
TEST(ShardedSketch, LosesNothingWhereAnEarlierMicroBatchIsNotFinite) {
  Ranks ranks(3, [](Group& c) {
    ShardedRank rank(c, true, Setting{3});
    ExchangePolicy policy = Sparse(0.2);
    policy.sketch = true;
    rank.reducer.SetPolicy(policy);
    if (!rank.Step(2)) return false;
    double before = 0;
    for (const float residual : rank.reducer.Residuals()) before += std::abs(residual);
    if (c.Rank() == 0) rank.spoils = 0;
    if (!rank.Step(2, false)) return false;
    double after = 0;
    for (const float residual : rank.reducer.Residuals()) {
      if (!std::isfinite(residual)) return false;
      after += std::abs(residual);
    }
    // What was held back is there, and what the skipped step gave is of a gradient's size.
    return after < 10 * (before + static_cast<double>(rank.gradients.size()));
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train
