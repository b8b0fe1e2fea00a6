// Who waits for whom, from what ranks say: one rank or link is named, and it is the right one.
#include "launcher/steps/stall_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::stall_cause_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = StallCause::Kind;

/// Ranks on n1, n2, ... that are computing; nothing is under way.
class Ranks {
 public:
  explicit Ranks(int size) : records(static_cast<std::size_t>(size)) {
    for (int i = 0; i < size; ++i) {
      At(i).host = "n" + std::to_string(i + 1);
      At(i).status.emplace();
      At(i).status->work = "computing";
      At(i).status->seconds = 20;
    }
  }
  RankRecord& At(int rank) { return records[static_cast<std::size_t>(rank)]; }
  PeerTraffic& Traffic(int rank, int peer) {
    for (PeerTraffic& p : At(rank).status->peers)
      if (p.rank == peer) return p;
    PeerTraffic& traffic = At(rank).status->peers.emplace_back();
    traffic.rank = peer;
    return traffic;
  }
  /// Messages that have come.
  void Delivered(int from, int to, std::int64_t count) {
    Traffic(from, to).sent += count;
    Traffic(from, to).sent_bytes += 100 * count;
    Traffic(to, from).received += count;
    Traffic(to, from).received_bytes += 100 * count;
  }
  void Sends(int from, int to, std::int64_t bytes) {
    ++Traffic(from, to).sent;
    Traffic(from, to).sent_bytes += bytes;
    At(from).status->operation = kSum;
  }
  void Awaits(int rank, int peer) {
    ++Traffic(rank, peer).awaited;
    At(rank).status->operation = kSum;
  }
  StallCause Cause() const { return FindStallCause(records); }
  std::string Line() const { return Describe(Cause(), records); }

  static constexpr const char* kSum = "all-reduce 7 of gradients";
  std::vector<RankRecord> records;
};

TEST(FindStallCause, ARankThatComputesIsTheEndOfAllWaits) {
  Ranks ranks(4);
  ranks.Awaits(0, 3), ranks.Awaits(1, 0), ranks.Awaits(3, 2);
  ranks.At(2).status->micro_batch = 3;
  const StallCause cause = ranks.Cause();
  EXPECT_EQ(cause.kind, Kind::kWorking);
  EXPECT_EQ(cause.rank, 2);
  EXPECT_THAT(cause.waiting, ElementsAre(0, 1, 3));
  EXPECT_EQ(ranks.Line(),
            "rank 2 on n3 is at: computing (micro-batch 3, for 20 s); ranks 0, 1, 3 wait for it");
}

TEST(FindStallCause, AWorkingRankMayHaveAskedForMessagesToo) {
  Ranks ranks(2);
  ranks.Awaits(0, 1), ranks.Awaits(1, 0);
  ranks.At(1).status->operation.clear();
  EXPECT_EQ(ranks.Cause().kind, Kind::kWorking);
  EXPECT_EQ(ranks.Cause().rank, 1);
}

// Around a ring each rank waits for the one before.
TEST(FindStallCause, TheLinkOfARingOnWhichMessagesAre) {
  for (int slow = 0; slow < 4; ++slow) {
    Ranks ranks(4);
    for (int i = 0; i < 4; ++i) {
      ranks.Delivered(i, (i + 1) % 4, 10);
      ranks.Awaits((i + 1) % 4, i);
    }
    ranks.Sends(slow, (slow + 1) % 4, 20'900'000);
    const StallCause cause = ranks.Cause();
    EXPECT_EQ(cause.kind, Kind::kLink);
    EXPECT_EQ(cause.peer, slow);
    EXPECT_EQ(cause.rank, (slow + 1) % 4);
    EXPECT_EQ(cause.bytes, 20'900'000);
    EXPECT_EQ(cause.waiting.size(), 3u);
  }
}

TEST(FindStallCause, ALinkInWords) {
  Ranks ranks(4);
  ranks.Sends(1, 2, 20'900'000);
  ranks.Awaits(2, 1), ranks.Awaits(3, 2), ranks.Awaits(0, 3), ranks.Awaits(1, 0);
  EXPECT_EQ(ranks.Line(),
            "20.9 MB from rank 1 on n2 have not reached rank 2 on n3 (all-reduce 7 of gradients, "
            "for 20 s); ranks 0, 3 wait for rank 2");
}

TEST(FindStallCause, ALinkThatOneRankWaitsToSendOver) {
  Ranks ranks(2);
  ranks.Sends(0, 1, 5000);
  const StallCause cause = ranks.Cause();
  EXPECT_EQ(cause.kind, Kind::kLink);
  EXPECT_EQ(cause.peer, 0);
  EXPECT_EQ(cause.rank, 1);
}

TEST(FindStallCause, ARankThatSaysNothing) {
  Ranks ranks(3);
  ranks.Awaits(0, 2), ranks.Awaits(1, 0);
  ranks.At(2).status.reset();
  EXPECT_EQ(ranks.Line(), "rank 2 on n3 does not say what it is at; ranks 0, 1 wait for it");
}

TEST(FindStallCause, TwoThatWaitForEachOther) {
  Ranks ranks(4);
  ranks.Awaits(0, 2), ranks.Awaits(2, 3), ranks.Awaits(3, 2), ranks.Awaits(1, 3);
  EXPECT_THAT(ranks.Line(), HasSubstr("rank 2 on n3 and rank 3 on n4 wait for each other"));
}

TEST(FindStallCause, AllThatWaitForEachOther) {
  Ranks ranks(3);
  ranks.Awaits(0, 2), ranks.Awaits(1, 0), ranks.Awaits(2, 1);
  EXPECT_THAT(ranks.Line(), HasSubstr("all ranks wait for each other"));
}

TEST(FindStallCause, TheCauseOfMostWaits) {
  Ranks ranks(6);
  ranks.Awaits(0, 1);
  ranks.Awaits(2, 3), ranks.Awaits(4, 2), ranks.Awaits(5, 4);
  EXPECT_EQ(ranks.Cause().rank, 3);
}

TEST(FindStallCause, NobodyWaits) {
  Ranks ranks(3);
  ranks.At(1).status->seconds = 50;
  EXPECT_EQ(ranks.Line(), "rank 1 on n2 is at: computing (for 50 s)");
}

// Numbers of ranks come from other machines.
TEST(FindStallCause, PeersThatAreNone) {
  Ranks ranks(2);
  ranks.Awaits(0, 77), ranks.Awaits(0, -3), ranks.Sends(0, 1'000'000, 5);
  EXPECT_EQ(ranks.Cause().rank, 1);
}

TEST(NameRanks, ManyAreCounted) {
  EXPECT_EQ(NameRanks(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(NameRanks(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace adaptive_train::stall_cause_test
