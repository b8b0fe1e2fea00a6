// Which rank failed first, from signs that come in any order.
#include "launcher/steps/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/rank_exit.h"

namespace adaptive_train::diagnosis_test {
namespace {

using testing::HasSubstr;

std::vector<RankRecord> Ranks(int n) {
  std::vector<RankRecord> ranks(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) ranks[static_cast<std::size_t>(i)].host = "n" + std::to_string(i + 1);
  return ranks;
}

RankFailure LostPeer(int peer) {
  return {-1,
          "",
          "all-reduce 3 of gradients",
          peer,
          "Connection reset",
          7,
          ToInt(RankExit::kTransport),
          FailureKind::kLinkLost};
}

TEST(Diagnose, NothingFromHealthyRanks) { EXPECT_FALSE(Diagnose(Ranks(3))); }

TEST(Diagnose, ADeadRankComesBeforeThoseThatMissedIt) {
  auto ranks = Ranks(3);
  ranks[0].order_reported = 1, ranks[0].report = LostPeer(1);
  ranks[2].order_reported = 2, ranks[2].report = LostPeer(1);
  ranks[1].order_closed = 3, ranks[1].closed_why = "the process ended", ranks[1].step = 7;
  auto found = Diagnose(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->failure.rank, 1);
  EXPECT_EQ(found->failure.kind, FailureKind::kUnknown);
  EXPECT_FALSE(found->hearsay);
  EXPECT_EQ(Describe(*found), "rank 1 on n2 failed after step 7: the process ended");
}

TEST(Diagnose, AnAccusationAloneIsHearsay) {
  auto ranks = Ranks(2);
  ranks[0].order_reported = 1, ranks[0].report = LostPeer(1);
  auto found = Diagnose(ranks);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->hearsay);
  EXPECT_FALSE(found->reported);
  EXPECT_EQ(found->failure.kind, FailureKind::kLinkLost);
  EXPECT_EQ(found->peer_host, "n2");
  EXPECT_EQ(BlamedFor(*found), Blamed::kLink);
  ranks[1].host = "n1";  // a link within a node is none between nodes
  EXPECT_EQ(BlamedFor(*Diagnose(ranks)), Blamed::kNobody);
  EXPECT_EQ(Describe(*found),
            "rank 0 on n1 failed after step 7 in all-reduce 3 of gradients with rank 1: Connection "
            "reset");
}

TEST(Diagnose, SilenceAndOwnReportsAreCauses) {
  auto ranks = Ranks(2);
  ranks[0].order_reported = 1, ranks[0].report = LostPeer(1);
  ranks[1].order_silent = 2, ranks[1].silence = std::chrono::milliseconds(2500);
  EXPECT_THAT(Describe(*Diagnose(ranks)), HasSubstr("rank 1 on n2 failed: no heartbeat for 2.5 s"));
  ranks[0].report = RankFailure{0,
                                "n1",
                                "writing a checkpoint",
                                -1,
                                "No space left on device",
                                9,
                                ToInt(RankExit::kCheckpoint)};
  EXPECT_EQ(Describe(*Diagnose(ranks)),
            "rank 0 on n1 failed after step 9 in writing a checkpoint: No space left on device");
}

TEST(Diagnose, TheEarliestOfEqualSignsAndTheProcessesEndInWords) {
  auto ranks = Ranks(3);
  ranks[2].order_closed = 1, ranks[2].order_ended = 4,
  ranks[2].ended_how = "killed by signal 9 (Killed)";
  ranks[0].order_closed = 2;
  EXPECT_THAT(Describe(*Diagnose(ranks)),
              HasSubstr("rank 2 on n3 failed: its process ended: killed by signal 9"));
}

/// Rank 1 of two on two nodes, whose process has ended so.
std::vector<RankRecord> Ended(FailureKind kind) {
  auto ranks = Ranks(2);
  for (RankRecord& rank : ranks) rank.hello = true;
  ranks[1].order_ended = 1, ranks[1].ended_how = "somehow", ranks[1].ended_kind = kind;
  return ranks;
}

TEST(Diagnose, AnEndOfAProcessHasTheKindThatItsStepSaw) {
  EXPECT_EQ(Diagnose(Ended(FailureKind::kKilled))->failure.kind, FailureKind::kKilled);
  EXPECT_EQ(Diagnose(Ended(FailureKind::kCrashed))->failure.kind, FailureKind::kCrashed);
  auto ranks = Ended(FailureKind::kCrashed);
  ranks[1].hello = false;
  EXPECT_EQ(Diagnose(ranks)->failure.kind, FailureKind::kLaunch);
}

TEST(Diagnose, ACrashBesideARankThatWasKilledIsNotTheCause) {
  auto ranks = Ended(FailureKind::kCrashed);
  ranks[1].ended_by_signal = true;
  EXPECT_FALSE(Diagnose(ranks)->final) << "what killed a peer may still come";
  ranks[0].order_closed = 2, ranks[0].order_reported = 3, ranks[0].report = LostPeer(1);
  EXPECT_EQ(Diagnose(ranks)->failure.rank, 1) << "a crash is more than the loss of a peer";
  ranks[0].report.reset();
  ranks[0].order_ended = 4, ranks[0].ended_how = "killed by signal 9 (Killed)";
  ranks[0].ended_by_signal = true, ranks[0].ended_kind = FailureKind::kOutOfMemory;
  EXPECT_EQ(Diagnose(ranks)->failure.rank, 0);
  EXPECT_TRUE(Diagnose(ranks)->final);
}

TEST(Diagnose, ALackOfMemoryIsTheNodesWhereTheRankKeptToItsPlan) {
  auto ranks = Ended(FailureKind::kOutOfMemory);
  ranks[1].ended_by_signal = true;
  ranks[1].planned_bytes = 1000;
  EXPECT_EQ(BlamedFor(*Diagnose(ranks)), Blamed::kNobody) << "what it took is not known";
  ranks[1].peak_bytes = 1001;
  EXPECT_EQ(BlamedFor(*Diagnose(ranks)), Blamed::kNobody);
  ranks[1].peak_bytes = 1000;
  EXPECT_EQ(BlamedFor(*Diagnose(ranks)), Blamed::kNode);
  ranks[1].ended_by_signal = false, ranks[1].ended_how = "exit code 18";
  EXPECT_EQ(BlamedFor(*Diagnose(ranks)), Blamed::kNobody) << "its user may limit the process";
  EXPECT_THAT(Describe(*Diagnose(ranks)), HasSubstr("exit code 18, out of memory"));
}

TEST(Diagnose, ANodeIsSilentWhenAllOnItAre) {
  auto ranks = Ranks(3);
  for (RankRecord& rank : ranks) rank.hello = true;
  ranks[2].host = ranks[1].host;
  ranks[1].order_silent = 1;
  EXPECT_EQ(Diagnose(ranks)->failure.kind, FailureKind::kRankSilent);
  EXPECT_EQ(BlamedFor(*Diagnose(ranks)), Blamed::kNobody);
  ranks[2].order_silent = 2;
  EXPECT_EQ(Diagnose(ranks)->failure.kind, FailureKind::kNodeSilent);
  EXPECT_EQ(BlamedFor(*Diagnose(ranks)), Blamed::kNode);
}

TEST(Diagnose, RanksThatSaidGoodbyeDidNotFail) {
  auto ranks = Ranks(2);
  ranks[0].goodbye = true, ranks[0].order_ended = 1;
  EXPECT_FALSE(Diagnose(ranks));
}

}  // namespace
}  // namespace adaptive_train::diagnosis_test
