// Groups made from a plan: what their members exchange at the same time does not mix.
#include "runtime/comm/groups.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::groups_test {
namespace {

constexpr int kStages = 2, kReplicas = 2, kTensor = 2, kRanks = kStages * kReplicas * kTensor;

/// Ranks in the order of (stage, replica, tensor rank).
Plan TwoByTwoByTwo() {
  Plan plan;
  plan.data = kReplicas;
  plan.tensor = kTensor;
  plan.stages.resize(kStages);
  for (int rank = 0; rank < kRanks; ++rank) {
    RankPlan entry;
    entry.rank = rank;
    entry.stage = rank / (kReplicas * kTensor);
    entry.replica = rank / kTensor % kReplicas;
    entry.tensor_rank = rank % kTensor;
    plan.ranks.push_back(entry);
  }
  return plan;
}

/// The sum of the members' numbers if member m of the group contributes `times` (rank + 1).
float SumOf(const Group& group, float times) {
  const auto& ranks = group.Members();
  return std::accumulate(ranks.begin(), ranks.end(), 0.0f, [&](float sum, int rank) {
    return sum + times * static_cast<float>(rank + 1);
  });
}

bool AllAre(const std::vector<float>& numbers, float expected, const char* what) {
  for (const float number : numbers) RANK_REQUIRE(number == expected, what, number, expected);
  return true;
}

/// In all groups at once, with sizes for recursive doubling and for rings.
bool SumsInAllGroups(Groups& groups, std::size_t count) {
  Group* const all[] = {&groups.world, &groups.data, &groups.tensor, &groups.pipeline,
                        &groups.embedding_head};
  std::vector<std::vector<float>> numbers;
  std::vector<Request> requests;
  const auto own = static_cast<float>(groups.world.Rank() + 1);
  for (std::size_t i = 0; i < std::size(all); ++i)
    numbers.emplace_back(count, static_cast<float>(i + 1) * own);
  for (std::size_t i = 0; i < std::size(all); ++i)
    requests.push_back(all[i]->AllReduce(Purpose::kGradient, std::span<float>(numbers[i])));
  for (std::size_t i = 0; i < std::size(all); ++i) {
    RANK_REQUIRE(requests[i].Wait(In(std::chrono::seconds(60))));
    RANK_REQUIRE(AllAre(numbers[i], SumOf(*all[i], static_cast<float>(i + 1)), "sum"));
  }
  return true;
}

TEST(Groups, SumsOfAllGroupsAtOnceAreTheirMembersOwn) {
  Ranks ranks(kRanks, [](Group& world) {
    const Plan plan = TwoByTwoByTwo();
    Groups groups(world.communicator(), plan);
    for (int round = 0; round < 5; ++round) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{20000}})
        RANK_REQUIRE(SumsInAllGroups(groups, count));
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(Groups, WhatGoesDownAPipelineComesFromTheStageBefore) {
  Ranks ranks(kRanks, [](Group& world) {
    const Plan plan = TwoByTwoByTwo();
    Groups groups(world.communicator(), plan);
    Group& pipeline = groups.pipeline;
    std::vector<float> sent(1000, static_cast<float>(world.Rank())), received(1000);
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      Request request = pipeline.Rank() == 0
                            ? pipeline.Send(1, Purpose::kActivation, std::as_bytes(std::span(sent)))
                            : pipeline.Receive(0, Purpose::kActivation,
                                               std::as_writable_bytes(std::span(received)));
      RANK_REQUIRE(request.Wait(In(std::chrono::seconds(60))));
    }
    return pipeline.Rank() == 0 ||
           AllAre(received, static_cast<float>(pipeline.RankOf(0)), "activation");
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(Groups, PartsAndChunksAreNumberedWithinTheGroup) {
  Ranks ranks(kRanks, [](Group& world) {
    const Plan plan = TwoByTwoByTwo();
    Groups groups(world.communicator(), plan);
    Group& tensor = groups.tensor;
    std::vector<float> parts(2 * 50, static_cast<float>(world.Rank() + 1));
    const auto half = [&](std::size_t member) { return std::span(parts).subspan(50 * member, 50); };
    RANK_REQUIRE(tensor.ReduceScatter(Purpose::kGradient, {half(0), half(1)})
                     .Wait(In(std::chrono::seconds(60))));
    RANK_REQUIRE(tensor
                     .AllGather(Purpose::kParameter,
                                {std::as_writable_bytes(half(0)), std::as_writable_bytes(half(1))})
                     .Wait(In(std::chrono::seconds(60))));
    return AllAre(parts, SumOf(tensor, 1), "gathered");
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train::groups_test
