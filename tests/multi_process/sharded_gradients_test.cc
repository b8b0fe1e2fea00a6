// Sharded sums over real processes and several micro-batches: owners get all contributions, others
// keep nothing, and skipped steps lose nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "kernels/cpu/cpu_device.h"
#include "runtime/exchange/gradient_reducer.h"
#include "tests/multi_process/forked_ranks.h"
#include "tests/multi_process/reducer_setting.h"
#include "tests/sanitized.h"

namespace adaptive_train::sharded_gradients_test {
namespace {

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

  /// Each backward adds to the arena, which must be 0 by then. Rank r has r + 1 of the
  /// `micro_batches`, the last rank at most all of them.
  bool Step(int micro_batches, bool updated = true) {
    std::normal_distribution<float> normal;
    for (int m = 0; m < micro_batches; ++m) {
      if (m <= group.Rank()) {
        for (std::size_t end = gradients.size(); end > 0;) {
          const std::size_t begin = end > kRange ? end - kRange : 0;
          for (std::size_t i = begin; i < end; ++i) {
            const float g = normal(random);
            gradients[i] += g;
            given[i] += static_cast<double>(g);
          }
          if (m == spoils) gradients[begin] = std::numeric_limits<float>::quiet_NaN();
          reducer.Add(begin, end);
          RANK_REQUIRE(reducer.Limit(4000, Soon()));
          end = begin;
        }
      } else {
        reducer.AddNothing(0, gradients.size());
      }
      if (m + 1 < micro_batches) RANK_REQUIRE(reducer.FinishMicroBatch(Soon()));
    }
    RANK_REQUIRE(reducer.Finish(Soon()));
    RANK_REQUIRE(OthersAreGone());
    if (updated) {
      for (const std::size_t i : own) got[i] += static_cast<double>(gradients[i]);
    }
    reducer.Settle(updated);
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    return true;
  }
  /// All ranks start over with the elements that rank 0 spoils.
  void ForgetSpoiled() {
    for (std::size_t end = gradients.size(); end > 0;) {
      const std::size_t begin = end > kRange ? end - kRange : 0;
      reducer.Residuals()[begin] = 0;
      given[begin] = 0;
      if (const auto found = got.find(begin); found != got.end()) found->second = 0;
      end = begin;
    }
  }
  bool OthersAreGone() const {
    std::vector<bool> mine(gradients.size());
    for (const std::size_t i : own) mine[i] = true;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      RANK_REQUIRE(mine[i] || gradients[i] == 0, i, gradients[i]);
    return true;
  }
  /// Owners got the sum of all inputs, less what all still hold.
  bool Conserved(double tolerance) {
    std::vector<double> total(given);
    for (std::size_t i = 0; i < reducer.Residuals().size(); ++i)
      total[i] -= static_cast<double>(reducer.Residuals()[i]);
    RANK_REQUIRE(group.AllReduce(Purpose::kStatistic, std::span<double>(total)).Wait(Soon()));
    for (const std::size_t i : own)
      RANK_REQUIRE(std::abs(total[i] - got[i]) <= tolerance, std::abs(total[i] - got[i]),
                   tolerance);
    return true;
  }
  static constexpr std::size_t kRange = 1111;  // elements that are added at once
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
                         SettingName);

TEST_P(ShardedGradients, OwnersGetTheSumsOfAllMicroBatchesAndOthersKeepNothing) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    ShardedRank rank(c, false, GetParam());
    for (int step = 0; step < 10; ++step) RANK_REQUIRE(rank.Step(1 + step % c.Size()));
    RANK_REQUIRE(rank.reducer.Figures().density <= 1, rank.reducer.Figures().density);
    RANK_REQUIRE(rank.Conserved(1e-4));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(ShardedGradients, WhatIsSentAndWhatIsKeptAddUpOverMicroBatchesAndSkippedSteps) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    ShardedRank rank(c, true, GetParam());
    for (int step = 0; step < (kSanitized ? 20 : 60); ++step) {
      ExchangePolicy policy =
          Sparse(0.1, step % 4 < 2 ? ValueFormat::kFloat8 : ValueFormat::kBFloat16);
      // A skipped step drops what is summed whole.
      if (step % 14 == 4) policy.density[1].reset();
      policy.sketch = step % 5 == 3;
      rank.reducer.SetPolicy(policy);
      RANK_REQUIRE(rank.Step(1 + step % 3, step % 7 != 5));
    }
    return rank.Conserved(0.02);
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// Otherwise one rank's samples would count again in the next update, and the others' not.
TEST_P(ShardedGradients, ASkippedStepOfWholeSumsKeepsNoRanksGradient) {
  Ranks ranks(GetParam().ranks, [](Group& c) {
    ShardedRank rank(c, true, GetParam());
    if (c.Rank() == 0) rank.spoils = 0;
    RANK_REQUIRE(rank.Step(1, false));
    for (const float residual : rank.reducer.Residuals()) RANK_REQUIRE(residual == 0, residual);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// How a spoiled layer is sent.
struct Spoiling {
  Setting setting;
  ValueFormat format = ValueFormat::kBFloat16;
  bool sketch = false;
};

std::string SpoilingName(const testing::TestParamInfo<Spoiling>& info) {
  const Spoiling& x = info.param;
  const auto setting = testing::TestParamInfo<Setting>(x.setting, info.index);
  return SettingName(setting) + (x.sketch                             ? "Sketch"
                                 : x.format == ValueFormat::kBFloat16 ? "BFloat16"
                                 : x.format == ValueFormat::kInt4     ? "Int4"
                                                                      : "Float8");
}

class SpoiledMicroBatch : public testing::TestWithParam<Spoiling> {};
INSTANTIATE_TEST_SUITE_P(Ways, SpoiledMicroBatch,
                         testing::Values(Spoiling{{3}}, Spoiling{{3}, ValueFormat::kFloat8},
                                         Spoiling{{3}, ValueFormat::kInt4},
                                         Spoiling{{4, 2}, ValueFormat::kInt4},
                                         Spoiling{.setting = {3}, .sketch = true}, Spoiling{{4, 2}},
                                         Spoiling{.setting = {4, 2}, .sketch = true}),
                         SpoilingName);

// Rank 0's values of the first micro-batch are spoiled in each chunk. The step is skipped after
// others have sent and settled theirs, some of them whole.
TEST_P(SpoiledMicroBatch, LosesNothingOfOthersWhereItIsNotTheLastOne) {
  Ranks ranks(GetParam().setting.ranks, [](Group& c) {
    ShardedRank rank(c, true, GetParam().setting);
    const bool whole = GetParam().format == ValueFormat::kInt4;
    ExchangePolicy policy = Sparse(whole ? 1 : 0.2, GetParam().format);
    policy.sketch = GetParam().sketch;
    for (int step = 0; step < 12; ++step) {
      rank.reducer.SetPolicy(policy);
      const bool spoiled = step % 4 == 1;
      rank.spoils = spoiled && c.Rank() == 0 ? 0 : -1;
      RANK_REQUIRE(rank.Step(3, !spoiled));
      for (const float residual : rank.reducer.Residuals()) RANK_REQUIRE(std::isfinite(residual));
      if (spoiled) rank.ForgetSpoiled();
    }
    return rank.Conserved(0.02);
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train::sharded_gradients_test
