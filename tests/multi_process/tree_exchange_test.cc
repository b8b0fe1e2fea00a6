// Units summed by real processes: the same bits whichever process has which, whole and sharded.
#include "runtime/exchange/tree_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "kernels/cpu/cpu_device.h"
#include "runtime/exchange/gradient_reducer.h"
#include "runtime/exchange/unit_sums.h"
#include "tests/multi_process/forked_ranks.h"
#include "tests/multi_process/reducer_setting.h"

namespace adaptive_train::tree_exchange_test {
namespace {

/// Gradients whose sums depend on the order, made from the unit and the arena alone.
std::vector<float> GradientsOf(std::int64_t unit, unsigned arena, std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(unit) * 2 + arena);
  std::normal_distribution<float> normal;
  std::vector<float> gradients(size);
  for (float& gradient : gradients) gradient = normal(random) * std::exp2(4 * normal(random));
  return gradients;
}

/// What all ranks must get: elements of the arena, and those of the tied matrix from a second one.
std::vector<float> WholeSum(const ParameterLayout& layout, std::int64_t units) {
  kernels::cpu::CpuDevice<float> device(1);
  const ParameterRange& matrix = *layout.Find("wte.weight");
  const auto sum_of = [&](unsigned number, std::size_t size) {
    std::vector<float> arena(size);
    UnitSums<float> sums(device, arena, {0, units}, units);
    for (std::int64_t unit = 0; unit < units; ++unit) {
      std::ranges::copy(GradientsOf(unit, number, size), arena.begin());
      sums.Take(0, size, unit);
    }
    // As many units as a power of two are one node; of others the caller adds up the nodes.
    std::vector<std::span<float>> nodes = sums.Nodes();
    for (const auto& [into, from] : AdditionsToRoot(NodesOf({0, units}, units), units))
      for (std::size_t i = 0; i < size; ++i) nodes[into][i] += nodes[from][i];
    return std::vector<float>(nodes.front().begin(), nodes.front().end());
  };
  std::vector<float> sum = sum_of(0, static_cast<std::size_t>(layout.size()));
  const std::vector<float> more = sum_of(1, static_cast<std::size_t>(matrix.count));
  for (std::size_t i = 0; i < more.size(); ++i)
    sum[static_cast<std::size_t>(matrix.offset) + i] += more[i];
  return sum;
}

/// One rank with some of the units, of two trees: the arena's, and another of the tied matrix.
struct TreeRank {
  TreeRank(Group& group, const std::vector<UnitRange>& all_shares, std::int64_t all, bool sharded)
      : units(all),
        own(all_shares[static_cast<std::size_t>(group.Rank())]),
        layout(kDims, StageSlice::Whole(kDims)),
        gradients(static_cast<std::size_t>(layout.size())),
        embedding(static_cast<std::size_t>(layout.Find("wte.weight")->count)),
        sums(device, gradients, own, units),
        embedding_sums(device, embedding, own, units),
        reducer(group, device, layout, gradients,
                {.sharded = sharded, .bucket_elements = 3000, .trees = Trees(all_shares)}) {}

  UnitTrees Trees(const std::vector<UnitRange>& all_shares) {
    UnitTrees trees{.units = units, .shares = all_shares, .trees = {{0, gradients.size(), {}}}};
    for (const std::span<float> node : sums.Nodes()) trees.trees[0].nodes.push_back(node.data());
    const auto begin = static_cast<std::size_t>(layout.Find("wte.weight")->offset);
    trees.trees.push_back({begin, begin + embedding.size(), {}});
    for (const std::span<float> node : embedding_sums.Nodes())
      trees.trees[1].nodes.push_back(node.data());
    return trees;
  }

  tl::expected<void, CommError> Step() {
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    std::fill(embedding.begin(), embedding.end(), 0.0f);
    for (std::int64_t unit = own.begin; unit < own.end; ++unit) {
      AddTo(gradients, GradientsOf(unit, 0, gradients.size()));
      AddTo(embedding, GradientsOf(unit, 1, embedding.size()));
      sums.Take(0, gradients.size(), unit);
      embedding_sums.Take(0, embedding.size(), unit);
    }
    for (const GradientBucket& bucket : reducer.Buckets()) reducer.Add(bucket.begin, bucket.end);
    auto outcome = reducer.Finish(In(std::chrono::seconds(60)));
    reducer.Settle(true);
    return outcome;
  }
  static void AddTo(std::vector<float>& arena, const std::vector<float>& more) {
    for (std::size_t i = 0; i < more.size(); ++i) arena[i] += more[i];
  }

  const std::int64_t units;
  const UnitRange own;
  kernels::cpu::CpuDevice<float> device{1};
  ParameterLayout layout;
  std::vector<float> gradients, embedding;
  UnitSums<float> sums, embedding_sums;
  GradientReducer<float> reducer;
};

bool SameBits(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

/// Shares of units to ranks: `even`, or as uneven as can be.
std::vector<UnitRange> SharesOf(int ranks, std::int64_t units, bool even) {
  std::vector<UnitRange> shares;
  std::int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t end = even                ? units * (rank + 1) / ranks
                             : rank + 1 == ranks ? units
                                                 : begin + 1 + rank % 2;
    shares.push_back({begin, end});
    begin = end;
  }
  return shares;
}

bool AllGetTheTreesSum(Group& group) {
  for (const std::int64_t units : {std::int64_t{8}, std::int64_t{13}}) {
    const std::vector<float> expected =
        WholeSum(ParameterLayout(kDims, StageSlice::Whole(kDims)), units);
    for (const bool sharded : {false, true}) {
      for (const bool even : {true, false}) {
        if (!even && group.Size() * 2 > units) continue;
        TreeRank rank(group, SharesOf(group.Size(), units, even), units, sharded);
        for (int step = 0; step < 2; ++step) {  // the second one in memory that the first has used
          RANK_REQUIRE(rank.Step());
          for (const GradientBucket& bucket : rank.reducer.Buckets()) {
            const GradientChunk chunk = rank.reducer.Buckets().ChunkOf(bucket, group.Rank());
            const std::size_t begin = sharded ? chunk.begin : bucket.begin,
                              end = sharded ? chunk.end : bucket.end;
            RANK_REQUIRE(SameBits(&rank.gradients[begin], &expected[begin], end - begin), units,
                         sharded, even, begin);
          }
        }
      }
    }
  }
  return true;
}

class TreeExchangeOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TreeExchangeOf, testing::Values(1, 2, 3, 4, 7));

TEST_P(TreeExchangeOf, AllGetTheSumOfTheTree) {
  Ranks ranks(GetParam(), AllGetTheTreesSum);
  EXPECT_TRUE(ranks.AllGood());
}

// The sums of the test above would not agree in another order.
TEST(TreeExchange, SumsInARowHaveOtherBits) {
  const ParameterLayout layout(kDims, StageSlice::Whole(kDims));
  std::vector<float> in_a_row(static_cast<std::size_t>(layout.size()));
  for (std::int64_t unit = 0; unit < 8; ++unit)
    TreeRank::AddTo(in_a_row, GradientsOf(unit, 0, in_a_row.size()));
  // Before the matrix nothing comes from the second tree.
  const auto begin = static_cast<std::size_t>(layout.Find("wte.weight")->count);
  EXPECT_FALSE(SameBits(&in_a_row[begin], &WholeSum(layout, 8)[begin], in_a_row.size() - begin));
}

// Shares that are whole nodes: what a reduce-scatter and an all-gather send, and no more.
TEST(TreeExchange, AlignedSharesSendWhatAReduceScatterDoes) {
  Ranks ranks(4, [](Group& group) {
    constexpr std::size_t kSize = 4000;
    std::vector<float> arena(kSize, 1.0f);
    TreeExchangeOrder order{.units = 8,
                            .shares = SharesOf(4, 8, true),
                            .chunks = {{0, 1000}, {1000, 2000}, {2000, 3000}, {3000, 4000}},
                            .trees = {{arena.data()}},
                            .result = arena};
    std::atomic<std::int64_t>& sent = group.communicator().Sent(Purpose::kGradient);
    const std::int64_t before = sent;
    const CollectiveLane lane = group.NextLane(Purpose::kGradient);
    RANK_REQUIRE(group.Launch(std::make_shared<TreeExchange>("sum", lane, order))
                     .Wait(In(std::chrono::seconds(60))));
    RANK_REQUIRE(sent - before == 2 * 3 * 1000 * 4, sent - before);
    for (const float value : arena) RANK_REQUIRE(value == 4, value);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(TreeExchange, NamesARankThatDoesNotTakePart) {
  Ranks ranks(3, [](Group& group) {
    if (group.Rank() == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      return true;
    }
    std::vector<float> arena(30, 1.0f);
    TreeExchangeOrder order{.units = 3,
                            .shares = SharesOf(3, 3, true),
                            .chunks = {{0, 10}, {10, 20}, {20, 30}},
                            .trees = {{arena.data()}},
                            .result = arena};
    const CollectiveLane lane = group.NextLane(Purpose::kGradient);
    const auto outcome = group.Launch(std::make_shared<TreeExchange>("sum", lane, order))
                             .Wait(In(std::chrono::seconds(2)));
    RANK_REQUIRE(!outcome);
    RANK_REQUIRE(outcome.error().peer == 2, outcome.error().peer);
    RANK_REQUIRE(outcome.error().cause.find(kMissed) != std::string::npos, outcome.error().cause);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train::tree_exchange_test
