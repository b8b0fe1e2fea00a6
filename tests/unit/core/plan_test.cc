// plan.json survives a round trip; an inconsistent one is refused.
#include "core/plan.h"

#include "core/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/small_plans.h"

namespace adaptive_train::plan_test {
namespace {

/// Two stages of one replica, four micro-batches.
Plan Listed() {
  Plan plan;
  plan.global_batch = 4;
  plan.stages = {{{{0, 3}}, {}, {}, {}}, {{{3, 8}}, {}, {}, {}}};
  for (int i = 0; i < 2; ++i) {
    RankPlan rank;
    rank.rank = rank.stage = i;
    rank.samples = 4;
    plan.ranks.push_back(rank);
  }
  plan.listed = {ToCsv(ComputeOrder(ScheduleKind::kZeroBubbleH1, {2, 1, 4}).value())};
  return plan;
}

TEST(Plan, RowsOfAListScheduleComeBackAsTheyWere) {
  const auto read = PlanFromJson(ToJson(Listed()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ScheduleNameOf(*read), "list");
  EXPECT_EQ(OrderOf(*read, 0), OrderOf(Listed(), 0));
}

// A rank's orders are untrusted: what is missing, swapped or of another shape never starts.
TEST(Plan, MutatedRowsOfAListScheduleAreRefused) {
  const auto refused = [](const Schedule& schedule) {
    Plan plan = Listed();
    plan.listed = {ToCsv(schedule)};
    return !PlanFromJson(ToJson(plan));
  };
  const Schedule good = OrderOf(Listed(), 0);
  ASSERT_FALSE(refused(good));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < good.ranks[rank].size(); ++i) {
      Schedule dropped = good;
      dropped.ranks[rank].erase(dropped.ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_TRUE(refused(dropped)) << rank << " without " << i;
      for (std::size_t j = i + 1; j < good.ranks[rank].size(); ++j) {
        Schedule swapped = good;
        if (swapped.ranks[rank][i].kind != swapped.ranks[rank][j].kind) continue;
        std::swap(swapped.ranks[rank][i].micro_batch, swapped.ranks[rank][j].micro_batch);
        EXPECT_TRUE(refused(swapped)) << rank << ": " << i << ", " << j;
      }
    }
  }
  EXPECT_TRUE(refused(ComputeOrder(ScheduleKind::kZeroBubbleH1, {2, 1, 3}).value()));
}

TEST(Plan, ReadsBackWhatWasWritten) {
  EXPECT_EQ(ToJson(*PlanFromJson(ToJson(EightRanks()))), ToJson(EightRanks()));
  Plan plan = TwoRanks();
  plan.step_seconds = 0.5;
  plan.bound_seconds = 0.25;
  plan.parts = {0.1, 0.1, 0.1, 0.1, 0.1};
  plan.ranks[1].device.uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  plan.ranks[1].device.nccl = "2.28.9";
  plan.alternatives = {{"even", "2 replicas", 0.75}, {"other", "does not fit", {}}};
  auto back = PlanFromJson(ToJson(plan));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(ToJson(*back), ToJson(plan));
  EXPECT_EQ(back->ranks[1].device.node, "n1");
  EXPECT_EQ(back->ranks[1].device.uuid, plan.ranks[1].device.uuid);
  EXPECT_EQ(back->ranks[1].device.nccl, "2.28.9");
  EXPECT_FALSE(back->orders.AnyLayout());
  plan.orders.reproducible = Reproducible::kLayout;
  EXPECT_TRUE(PlanFromJson(ToJson(plan))->orders.AnyLayout());
  std::string earlier = ToJson(plan);
  const std::string key = "\"zstd\"";
  earlier.replace(earlier.find(key), key.size(), "\"else\"");
  back = PlanFromJson(earlier);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_FALSE(back->orders.compression.zstd) << "a plan of before";
}

TEST(Plan, HasItsLayoutAsText) {
  EXPECT_EQ(LayoutText(TwoRanks()), "EttL");
  EXPECT_EQ(LayoutText(EightRanks()), "Ett|t*4L");
  Plan chunks = EightRanks();
  chunks.stages[0].chunks = {{0, 1}, {4, 6}};
  chunks.stages[1].chunks = {{1, 4}, {6, 8}};
  EXPECT_EQ(LayoutText(chunks), "E|t*3|tt|tL");
  EXPECT_NE(ToJson(chunks).find("\"layout\": \"E|t*3|tt|tL\""), std::string::npos);
  chunks.stages[1].chunks.pop_back();
  EXPECT_EQ(LayoutText(chunks), "") << "no consistent plan";
}

TEST(Plan, RefusesWhatIsInconsistent) {
  auto refused = [](auto change) {
    Plan plan = TwoRanks();
    change(plan);
    return !PlanFromJson(ToJson(plan));
  };
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[1].samples = 1; }));
  const auto compressed = [&](CompressionMode mode, ValueEncoding values) {
    return refused([=](Plan& p) {
      p.orders.compression.mode = mode;
      p.orders.compression.values = values;
    });
  };
  EXPECT_TRUE(compressed(CompressionMode::kAuto, ValueEncoding::kAuto)) << "left open";
  EXPECT_TRUE(compressed(CompressionMode::kVarianceTopk, ValueEncoding::kInt4));
  EXPECT_FALSE(compressed(CompressionMode::kAuto, ValueEncoding::kInt4));
  EXPECT_TRUE(refused([](Plan& p) {
    p.orders.compression.values = ValueEncoding::kBf16;
    p.orders.compression.zstd = true;
  }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[1].first_sample = 2; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[1].rank = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[0].micro_batch = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[0].device.threads = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks.clear(); }));
  EXPECT_TRUE(refused([](Plan& p) { p.data = 3; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[1].replica = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.stages[0].chunks[0].first_layer = 1; }));
  EXPECT_TRUE(refused([](Plan& p) { p.stages[0].ring = {0, 0}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.stages[0].ring = {0}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.stages[0].compressed_layers = {2, 1}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.stages[0].compressed_layers = {4}; }));
  EXPECT_TRUE(refused([](Plan& p) { p.stages.push_back(p.stages[0]); }));
  EXPECT_TRUE(refused([](Plan& p) {
    p.ranks[0].samples = 6, p.ranks[1].first_sample = 6, p.ranks[1].samples = -1;
  }));
}

TEST(Plan, KnowsWhichRanksShareNodes) {
  Plan plan = TwoRanks();
  EXPECT_EQ(MembersByNode(plan, GroupsOf(plan, 0).data), (std::vector<std::vector<int>>{{0}, {1}}));
  plan.stages[0].all_reduce.node_first = true;
  EXPECT_TRUE(PlanFromJson(ToJson(plan)));
  plan.ranks[1].device.node = plan.ranks[0].device.node;
  EXPECT_EQ(MembersByNode(plan, GroupsOf(plan, 0).data), (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_FALSE(PlanFromJson(ToJson(plan))) << "one node alone has nothing to sum with others";
}

TEST(Plan, RefusesReplicasThatDifferBetweenRanks) {
  for (std::size_t i = 0; i < 8; ++i) {
    Plan plan = EightRanks();
    plan.ranks[i].samples = 3;
    EXPECT_FALSE(PlanFromJson(ToJson(plan))) << i;
  }
}

TEST(Plan, RefusesGarbageAndNewerVersions) {
  for (const char* text : {"", "[]", "{}", "{\"format_version\":1}", "{\"format_version\":99}",
                           "{\"format_version\":\"1\"}"}) {
    auto plan = PlanFromJson(text);
    ASSERT_FALSE(plan) << text;
    EXPECT_EQ(plan.error().message.find('\n'), std::string::npos);
  }
}

/// Two stages of three replicas of two tensor ranks: rank = (stage * 3 + replica) * 2 + tensor rank.
TEST(GroupsOf, AreWhatTheRanksShare) {
  Plan plan;
  plan.data = 3;
  plan.tensor = 2;
  plan.stages.resize(2);
  for (int rank = 0; rank < 12; ++rank) {
    RankPlan entry;
    entry.rank = rank;
    entry.stage = rank / 6;
    entry.replica = rank / 2 % 3;
    entry.tensor_rank = rank % 2;
    entry.device.node = rank % 6 < 4 ? "a" : "b";
    plan.ranks.push_back(entry);
  }
  const GroupMembers groups = GroupsOf(plan, 9);
  EXPECT_EQ(groups.data, (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(groups.tensor, (std::vector<int>{8, 9}));
  EXPECT_EQ(groups.pipeline, (std::vector<int>{3, 9}));
  EXPECT_EQ(groups.embedding_head, (std::vector<int>{3, 9}));
  EXPECT_EQ(MembersByNode(plan, groups.data), (std::vector<std::vector<int>>{{0, 1}, {2}}));
  EXPECT_TRUE(EvenMembersByNode(plan, groups.data).empty());
}

TEST(GroupsOf, AMiddleStageSharesNoEmbedding) {
  Plan plan;
  plan.stages.resize(3);
  for (int rank = 0; rank < 3; ++rank) {
    RankPlan entry;
    entry.rank = entry.stage = rank;
    plan.ranks.push_back(entry);
  }
  EXPECT_EQ(GroupsOf(plan, 0).embedding_head, (std::vector<int>{0, 2}));
  EXPECT_EQ(GroupsOf(plan, 1).embedding_head, (std::vector<int>{1}));
  EXPECT_EQ(GroupsOf(plan, 2).embedding_head, (std::vector<int>{0, 2}));
}

}  // namespace
}  // namespace adaptive_train::plan_test
