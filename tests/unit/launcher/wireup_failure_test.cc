// Launches that fail before ranks know each other: no rank is blamed without evidence.
#include "launcher/steps/wireup_failure.h"

#include <gtest/gtest.h>

#include "core/rank_exit.h"

namespace adaptive_train::wireup_failure_test {
namespace {

std::vector<RankRecord> Ranks(int n) {
  std::vector<RankRecord> ranks(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    RankRecord& rank = ranks[static_cast<std::size_t>(i)];
    rank.host = "n" + std::to_string(i + 1);
    rank.hello = rank.ready = true;
  }
  return ranks;
}

RankFailure Wireup(const char* operation, int peer, const char* cause) {
  return {-1, "", operation, peer, cause, 0, ToInt(RankExit::kWireup)};
}

TEST(DescribeWireup, AFenceThatFailedOnAllBlamesNobody) {
  auto ranks = Ranks(3);
  for (auto& rank : ranks) rank.report = Wireup("PMIx exchange", -1, "PMIx fence did not end");
  EXPECT_EQ(DescribeWireup(ranks), "PMIx exchange: PMIx fence did not end on ranks 0, 1, 2");
}

// Recursive doubling: 2 and 3 first, then 0 with 2 and 1 with 3.
TEST(DescribeWireup, TheFirstSumNamesTheLink) {
  auto ranks = Ranks(4);
  const auto waits = [&](int rank, int peer) {
    auto& record = ranks[static_cast<std::size_t>(rank)];
    record.report = Wireup("first all-reduce 0 of statistics", peer, "missed its deadline");
    record.status.emplace();
    record.status->peers.push_back({peer, 1, 8, 0, 0, 0});
  };
  waits(0, 2), waits(1, 3), waits(2, 3), waits(3, 2);
  EXPECT_EQ(
      DescribeWireup(ranks),
      "first all-reduce 0 of statistics: missed its deadline: 8 bytes from rank 3 on n4 have "
      "not reached rank 2 on n3 (first all-reduce 0 of statistics, for 0 s); rank 0 waits for "
      "rank 2");
}

TEST(DescribeWireup, WhoDidNotComeIsNamed) {
  auto ranks = Ranks(3);
  ranks[1].hello = ranks[1].ready = false;
  EXPECT_EQ(DescribeWireup(ranks), "rank 1 (n2) did not reach the launcher in time");
  ranks[1].hello = true;
  EXPECT_EQ(DescribeWireup(ranks), "rank 1 (n2) did not end PMIx_Init in time");
}

}  // namespace
}  // namespace adaptive_train::wireup_failure_test
