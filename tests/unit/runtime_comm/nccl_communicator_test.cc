// Collectives of NCCL as Requests, and each fault of the library by itself.
#include "runtime/comm/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <optional>

#include "tests/unit/runtime_comm/fake_ranks.h"

namespace adaptive_train::nccl_communicator_test {
namespace {

using fake_nccl::Call;
using fake_nccl::Fault;
using fake_nccl::Kind;
using std::chrono::milliseconds;
using testing::HasSubstr;

std::vector<float> Numbers(int rank, int count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), static_cast<float>(100 * rank));
  return numbers;
}

/// Joins, and says so if that fails.
bool Joined(FakeRank& own) {
  const auto outcome = own.world.Join(own.invitation).Wait(Late());
  EXPECT_TRUE(outcome) << Words(outcome);
  return outcome.has_value();
}

TEST(NcclCommunicator, SumsGathersScattersAndExchanges) {
  RunRanks(3, {}, [](FakeRank& own) {
    ASSERT_TRUE(Joined(own));
    auto sum = Numbers(own.rank, 5), gathered = Numbers(own.rank, 6), part = Numbers(own.rank, 6);
    auto sent = Numbers(own.rank, 4), came = Numbers(9, 4);
    std::vector<double> wide{0.5 * own.rank};
    auto one = own.world.AllReduce(std::span(sum));
    auto two = own.world.AllGather(std::span(gathered));
    auto three = own.world.ReduceScatter(std::span(part));
    auto four = own.world.Exchange({{(own.rank + 1) % 3, true, std::span(sent)},
                                    {(own.rank + 2) % 3, false, std::span(came)}});
    auto five = own.world.AllReduce(std::span(wide));
    for (Request* request : {&five, &one, &two, &three, &four})
      EXPECT_EQ(Words(request->Wait(Late())), "");
    EXPECT_THAT(sum, testing::ElementsAre(300, 303, 306, 309, 312));
    EXPECT_THAT(gathered, testing::ElementsAre(0, 1, 102, 103, 204, 205));
    const auto at = static_cast<std::size_t>(2 * own.rank);
    EXPECT_EQ(part[at], 300 + 3 * static_cast<float>(at));
    EXPECT_EQ(part[at + 1], 303 + 3 * static_cast<float>(at));
    EXPECT_EQ(came, Numbers((own.rank + 2) % 3, 4));
    EXPECT_EQ(wide[0], 1.5);
    EXPECT_EQ(Words(own.world.Finish().Wait(Late())), "");
    EXPECT_EQ(own.world.Report().taken, 7);
    EXPECT_EQ(own.world.Report().collectives, 6);
    EXPECT_EQ(own.world.Report().fault, MemberFault::kNone);
  });
}

TEST(NcclCommunicator, OneRankIsAGroup) {
  RunRanks(1, {}, [](FakeRank& own) {
    ASSERT_TRUE(Joined(own));
    auto sum = Numbers(4, 2);
    EXPECT_EQ(Words(own.world.AllReduce(std::span(sum)).Wait(Late())), "");
    EXPECT_EQ(sum, Numbers(4, 2));
  });
}

TEST(NcclCommunicator, ASplitMakesGroupsAndLeavesRanksOut) {
  RunRanks(5, {}, [](FakeRank& own) {
    ASSERT_TRUE(Joined(own));
    // The second group is in descending order; rank 2 is in none.
    const std::vector<int> members = own.rank < 2 ? std::vector{0, 1} : std::vector{4, 3};
    const FakeStream stream;
    std::optional<NcclCommunicator> child;
    if (own.rank != 2)
      child.emplace(own.library, own.executor, stream.get(),
                    NcclPlace{"data group", members, own.rank == members[0] ? 0 : 1}, kPatient);
    EXPECT_EQ(Words(own.world.Split(child ? &*child : nullptr).Wait(Late())), "");
    if (!child) return;
    std::vector<float> gathered(2, static_cast<float>(own.rank));
    EXPECT_EQ(Words(child->AllGather(std::span(gathered)).Wait(Late())), "");
    EXPECT_THAT(gathered, own.rank < 2 ? testing::ElementsAre(0, 1) : testing::ElementsAre(4, 3));
    EXPECT_EQ(Words(child->Finish().Wait(Late())), "");
  });
}

TEST(NcclCommunicator, SlowCallsAreWaitedFor) {
  const std::vector<Fault> slow{{0, Call::kInit, 0, Kind::kSlow, {}, 50},
                                {1, Call::kEnqueue, 1, Kind::kSlow, {}, 50},
                                {0, Call::kFinalize, 0, Kind::kSlow, {}, 50}};
  RunRanks(2, {slow}, [](FakeRank& own) {
    ASSERT_TRUE(Joined(own));
    auto sum = Numbers(own.rank, 3);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(Words(own.world.AllReduce(std::span(sum)).Wait(Late())), "");
    EXPECT_THAT(sum, testing::ElementsAre(400, 408, 416));
    EXPECT_EQ(Words(own.world.Finish().Wait(Late())), "");
  });
}

/// The error of each rank's all-reduce after `faults`, and who failed first.
struct Ends {
  std::vector<std::string> words;
  std::vector<MemberReport> reports;
  std::optional<FirstFailure> first;
};

Ends ReduceWith(std::vector<Fault> faults, bool peers_learn = false) {
  constexpr int kSize = 3;
  Ends ends{std::vector<std::string>(kSize), std::vector<MemberReport>(kSize), {}};
  const fake_nccl::Script script{std::move(faults), peers_learn};
  Gate gate(kSize);
  RunRanks(kSize, script, [&](FakeRank& own) {
    auto sum = Numbers(own.rank, 3);
    std::string words = Words(own.world.Join(own.invitation).Wait(Late()));
    if (words.empty()) {
      auto request = own.world.AllReduce(std::span(sum));
      Shorten(own.world, 2, own.rank == script.faults.front().rank, gate,
              DeadlinesOf(script, own.rank));
      words = Words(request.Wait(Late()));
    } else {
      gate.Arrive();
    }
    if (words.empty()) words = Words(own.world.Finish().Wait(Late()));
    ends.words[static_cast<std::size_t>(own.rank)] = words;
    ends.reports[static_cast<std::size_t>(own.rank)] = own.world.Report();
  });
  fake_nccl::Release();
  ends.first = FirstToFail(AllRanks(kSize), ends.reports);
  return ends;
}

TEST(NcclCommunicator, ACallInProgressForEverEndsAtItsDeadline) {
  const Ends ends = ReduceWith({{1, Call::kEnqueue, 0, Kind::kInProgress}});
  EXPECT_EQ(ends.words[1], "all-reduce 1 of the world: NCCL is in progress for 0.2 s");
  EXPECT_EQ(ends.words[0], "all-reduce 1 of the world: its work does not end for 0.2 s");
  ASSERT_TRUE(ends.first);
  EXPECT_EQ(ends.first->rank, 1);
}

TEST(NcclCommunicator, AJoinThatNeverEndsStopsAllRanks) {
  const Ends ends = ReduceWith({{2, Call::kInit, 0, Kind::kInProgress}});
  for (const std::string& words : ends.words)
    EXPECT_EQ(words, "join 1 of the world: NCCL is in progress for 0.2 s");
  EXPECT_FALSE(ends.first) << "NCCL does not tell whom it waits for";
}

TEST(NcclCommunicator, ALateErrorIsFoundByAskingForIt) {
  const Ends ends =
      ReduceWith({{2, Call::kEnqueue, 0, Kind::kLateError, nccl::ncclUnhandledCudaError, 1}}, true);
  EXPECT_EQ(ends.words[2], "all-reduce 1 of the world: unhandled cuda error");
  EXPECT_THAT(ends.words[0], HasSubstr("remote process exited"));
  EXPECT_EQ(ends.reports[0].fault, MemberFault::kPeer);
  EXPECT_EQ(ends.first->rank, 2);
  EXPECT_EQ(ends.first->why, ends.words[2]);
}

TEST(NcclCommunicator, AnErrorAtOnceAborts) {
  const Ends ends = ReduceWith({{0, Call::kEnqueue, 0, Kind::kError, nccl::ncclSystemError}}, true);
  EXPECT_EQ(ends.words[0], "all-reduce 1 of the world: unhandled system error");
  EXPECT_EQ(ends.first->rank, 0);
}

TEST(NcclCommunicator, AnAbortThatHangsIsLeftBehind) {
  const Ends ends = ReduceWith({{1, Call::kEnqueue, 0, Kind::kError, nccl::ncclInternalError},
                                {1, Call::kAbort, 0, Kind::kNeverReturns}});
  EXPECT_EQ(ends.words[1],
            "all-reduce 1 of the world: internal error; ncclCommAbort has not returned for 0.2 s; "
            "the rank must end");
  EXPECT_TRUE(ends.reports[1].left_behind);
  EXPECT_EQ(ends.first->rank, 1);
}

TEST(NcclCommunicator, ADestroyThatHangsIsLeftBehind) {
  const Ends ends = ReduceWith({{0, Call::kDestroy, 0, Kind::kNeverReturns}});
  EXPECT_EQ(ends.words[0],
            "end 1 of the world: ncclCommDestroy has not returned for 0.2 s; the rank must end");
  EXPECT_TRUE(ends.reports[0].left_behind);
  EXPECT_EQ(ends.first->rank, 0);
}

TEST(NcclCommunicator, AnotherVersionThanMemberZerosIsRefused) {
  const NcclInvitation invitation = Invite(OpenFake()).value();
  fake_nccl::SayVersion(22105);
  FakeRank own(1, 2, invitation, kPatient);
  fake_nccl::SayVersion(22809);
  EXPECT_EQ(Words(own.world.Join(invitation).Wait(Late())),
            "join 1 of the world: NCCL 2.21.5 here, 2.28.9 on rank 0: they must be of one version");
}

TEST(NcclCommunicator, ACancelledOperationAbortsWhatIsBehindIt) {
  std::atomic<bool> over = false;
  RunRanks(2, {}, [&over](FakeRank& own) {
    ASSERT_TRUE(Joined(own));
    if (own.rank == 1) {  // never comes
      while (!over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    auto sum = Numbers(0, 3), next = Numbers(0, 3);
    auto request = own.world.AllReduce(std::span(sum));
    auto behind = own.world.AllReduce(std::span(next));
    const auto missed = request.Wait(RunningClock::now() + milliseconds(50));
    EXPECT_EQ(Words(missed), "all-reduce 1 of the world: missed its deadline");
    EXPECT_EQ(Words(behind.Wait(Late())),
              "all-reduce 2 of the world: the communicator has ended after all-reduce 1 of the "
              "world: missed its deadline");
    EXPECT_EQ(Words(own.world.Finish().Wait(Late())),
              "end 1 of the world: the communicator has ended after all-reduce 1 of the world: "
              "missed its deadline");
    over = true;
  });
}

TEST(NcclCommunicator, ASplitThatFailsTakesTheChildWithIt) {
  RunRanks(2, {{{0, Call::kSplit, 0, Kind::kInProgress}}}, [](FakeRank& own) {
    ASSERT_TRUE(Joined(own));
    const FakeStream stream;
    NcclCommunicator child(own.library, own.executor, stream.get(),
                           {"data group", {0, 1}, own.rank}, kPatient);
    auto split = own.world.Split(&child);
    auto sum = Numbers(own.rank, 3);
    auto early = child.AllReduce(std::span(sum));
    EXPECT_THAT(Words(split.Wait(Late())), HasSubstr("NCCL is in progress for 0.2 s"));
    EXPECT_THAT(Words(early.Wait(Late())), HasSubstr("NCCL is in progress for 0.2 s"));
  });
}

TEST(NcclCommunicator, AnErrorOfTheStreamIsTheRanksOwn) {
  const NcclInvitation invitation = Invite(OpenFake()).value();
  const nccl::Library library = OpenFake();
  FakeStream fake;
  NcclStream stream = fake.get();
  stream.mark = []() -> StreamPoint {
    return []() -> Result<bool> { return Fail("an illegal memory access was encountered"); };
  };
  NcclExecutor executor;
  NcclCommunicator alone(library, executor, stream, {"world", {0}, 0}, kPatient);
  ASSERT_EQ(Words(alone.Join(invitation).Wait(Late())), "");
  auto sum = Numbers(0, 3);
  EXPECT_EQ(Words(alone.AllReduce(std::span(sum)).Wait(Late())),
            "all-reduce 1 of the world: an illegal memory access was encountered");
  EXPECT_EQ(alone.Report().fault, MemberFault::kOwn);
}

}  // namespace
}  // namespace adaptive_train::nccl_communicator_test
