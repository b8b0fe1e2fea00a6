// plan.json: what is written reads back; what is inconsistent is refused.
#include "core/plan.h"

#include <gtest/gtest.h>

namespace adaptive_train {
namespace {

Plan TwoRanks() {
  Plan plan;
  plan.global_batch = 5;
  plan.memory_bytes = 1000;
  plan.why = {"because", "and so"};
  for (int i = 0; i < 2; ++i) {
    RankPlan rank;
    rank.rank = i;
    rank.device = {"n" + std::to_string(i), "cpu", 0, "model", 1 << 30, 2};
    rank.first_sample = i * 3;
    rank.samples = 3 - i;
    rank.micro_batch = 2;
    plan.ranks.push_back(rank);
  }
  return plan;
}

TEST(Plan, ReadsBackWhatWasWritten) {
  Plan plan = TwoRanks();
  plan.step_seconds = 0.5;
  auto back = PlanFromJson(ToJson(plan));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(ToJson(*back), ToJson(plan));
  EXPECT_EQ(back->ranks[1].device.node, "n1");
}

TEST(Plan, RefusesWhatIsInconsistent) {
  auto refused = [](auto change) {
    Plan plan = TwoRanks();
    change(plan);
    return !PlanFromJson(ToJson(plan));
  };
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[1].samples = 1; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[1].first_sample = 2; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[1].rank = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[0].micro_batch = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks[0].device.threads = 0; }));
  EXPECT_TRUE(refused([](Plan& p) { p.ranks.clear(); }));
  EXPECT_TRUE(refused([](Plan& p) {
    p.ranks[0].samples = 6, p.ranks[1].first_sample = 6, p.ranks[1].samples = -1;
  }));
}

TEST(Plan, RefusesGarbageAndNewerVersions) {
  for (const char* text : {"", "[]", "{}", "{\"format_version\":1}", "{\"format_version\":99}",
                           "{\"format_version\":\"1\"}"}) {
    auto plan = PlanFromJson(text);
    ASSERT_FALSE(plan) << text;
    EXPECT_EQ(plan.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace adaptive_train
