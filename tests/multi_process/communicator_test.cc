// The communicator between real processes: sums for ranks {1, 2, 3, 4, 6, 7} and sizes from 0,
// transfers, lost and stuck peers.
#include "runtime/comm/communicator.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/multi_process/forked_ranks.h"
#include "tests/multi_process/shared_count.h"

namespace adaptive_train::communicator_test {
namespace {

class AllReduce : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, testing::Values(1, 2, 3, 4, 6, 7));

/// Each algorithm for all sizes. With `per_node` ranks per node, ranks alternate between the nodes.
AllReduceWays Doubling() { return {.doubling_bytes = std::int64_t{1} << 40}; }
AllReduceWays Halving() { return {.doubling_bytes = 0, .halving_bytes = std::int64_t{1} << 40}; }
AllReduceWays Ring() { return {.doubling_bytes = 0}; }
AllReduceWays NodeFirst(int size, int per_node) {
  AllReduceWays ways = Ring();
  ways.nodes.resize(static_cast<std::size_t>(size / per_node));
  for (int rank = 0; rank < size; ++rank)
    ways.nodes[static_cast<std::size_t>(rank) % ways.nodes.size()].push_back(rank);
  return ways;
}
std::vector<AllReduceWays> AllWays(int size) {
  std::vector<AllReduceWays> all = {{}, Doubling(), Halving(), Ring()};
  for (int per_node = 2; per_node < size; ++per_node)
    if (size % per_node == 0) all.push_back(NodeFirst(size, per_node));
  return all;
}

bool SumsExactly(Group& c) {
  for (std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1000},
                        (std::size_t{1} << 20) + 3}) {
    std::vector<float> data(n);
    for (std::size_t i = 0; i < n; ++i)
      data[i] = static_cast<float>(static_cast<int>(i % 1000) * (c.Rank() + 1));
    RANK_REQUIRE(
        c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(60))));
    const int factor = c.Size() * (c.Size() + 1) / 2;
    for (std::size_t i = 0; i < n; ++i) {
      RANK_REQUIRE(data[i] == static_cast<float>(static_cast<int>(i % 1000) * factor), data[i],
                   static_cast<float>(static_cast<int>(i % 1000) * factor));
    }
  }
  return true;
}

TEST_P(AllReduce, SumsExactlyForAllSizesInAllWays) {
  Ranks ranks(GetParam(), [](Group& c) {
    for (const AllReduceWays& ways : AllWays(c.Size())) {
      c.SetWays(ways);
      RANK_REQUIRE(SumsExactly(c));
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

void ExpectTheSameBits(int size, std::size_t count, const AllReduceWays& ways) {
  Ranks ranks(size, [count, &ways](Group& c) {
    c.SetWays(ways);
    std::vector<float> data(count);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = 1.0f / static_cast<float>(i * 7 + static_cast<std::size_t>(c.Rank()) * 13 + 1);
    RANK_REQUIRE(
        c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(60))));
    // Compares all ranks' bits with rank 0's: sums of x and of x squared agree only if all x are
    // equal.
    for (std::size_t i = 0; i < data.size(); i += 97) {
      const double x = data[i];
      double sums[2] = {x, x * x};
      RANK_REQUIRE(c.AllReduce(Purpose::kStatistic, std::span<double>(sums))
                       .Wait(In(std::chrono::seconds(60))));
      RANK_REQUIRE(sums[0] == x * c.Size(), sums[0], x * c.Size());
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood()) << count;
}

TEST_P(AllReduce, GivesAllRanksTheSameBits) {
  for (const AllReduceWays& ways : AllWays(GetParam())) ExpectTheSameBits(GetParam(), 10007, ways);
}

TEST_P(AllReduce, RunsManyAtOnceInBothPrecisions) {
  Ranks ranks(GetParam(), [](Group& c) {
    std::vector<std::vector<float>> floats(
        20, std::vector<float>(5000, static_cast<float>(c.Rank() + 1)));
    std::vector<double> doubles(77, c.Rank() + 1.0);
    std::vector<Request> requests;
    for (auto& data : floats)
      requests.push_back(c.AllReduce(Purpose::kGradient, std::span<float>(data)));
    requests.push_back(c.AllReduce(Purpose::kStatistic, std::span<double>(doubles)));
    for (Request& request : requests) {
      RANK_REQUIRE(request.Wait(In(std::chrono::seconds(60))));
    }
    const double sum = c.Size() * (c.Size() + 1) / 2.0;
    for (const auto& data : floats) {
      RANK_REQUIRE(data.front() == static_cast<float>(sum), data.front(), static_cast<float>(sum));
      RANK_REQUIRE(data.back() == static_cast<float>(sum), data.back(), static_cast<float>(sum));
    }
    RANK_REQUIRE(doubles[76] == sum, doubles[76], sum);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(AllReduce, CountsThePayloadOfTheRing) {
  Ranks ranks(GetParam(), [](Group& c) {
    std::vector<float> data(static_cast<std::size_t>(c.Size()) * 10'000);
    RANK_REQUIRE(
        c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(60))));
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kGradient) == 2 * (c.Size() - 1) * 10'000 * 4,
                 c.communicator().BytesSent(Purpose::kGradient), 2 * (c.Size() - 1) * 10'000 * 4);
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kParameter) == 0,
                 c.communicator().BytesSent(Purpose::kParameter));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// Bytes that a rank sent for a sum of `count` float32 numbers.
std::int64_t PayloadOf(Group& c, const AllReduceWays& ways, std::size_t count) {
  c.SetWays(ways);
  const std::int64_t before = c.communicator().BytesSent(Purpose::kGradient);
  std::vector<float> data(count);
  if (!c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(60))))
    return -1;
  return c.communicator().BytesSent(Purpose::kGradient) - before;
}

TEST(AllReduceWays, SendWhatTheoryAsksFor) {
  Ranks ranks(8, [](Group& c) {
    const std::size_t n = 8000;
    // Half of it inside nodes of two, and of the other half three quarters between four.
    RANK_REQUIRE(PayloadOf(c, Ring(), n) == 2 * 4 * 7000, PayloadOf(c, Ring(), n), 2 * 4 * 7000);
    RANK_REQUIRE(PayloadOf(c, Halving(), n) == 2 * 4 * 7000, PayloadOf(c, Halving(), n),
                 2 * 4 * 7000);
    RANK_REQUIRE(PayloadOf(c, Doubling(), n) == 3 * 4 * 8000, PayloadOf(c, Doubling(), n),
                 3 * 4 * 8000);
    RANK_REQUIRE(PayloadOf(c, NodeFirst(8, 2), n) == 4 * (2 * 4000 + 2 * 3000),
                 PayloadOf(c, NodeFirst(8, 2), n), 4 * (2 * 4000 + 2 * 3000));
    RANK_REQUIRE(PayloadOf(c, NodeFirst(8, 4), n) == 4 * (2 * 6000 + 2 * 1000),
                 PayloadOf(c, NodeFirst(8, 4), n), 4 * (2 * 6000 + 2 * 1000));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(AllReduceOfFew, CountsThePayloadOfDoubling) {
  Ranks ranks(6, [](Group& c) {
    std::vector<float> data(100);
    RANK_REQUIRE(
        c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(60))));
    // Ranks 4 and 5 hand in their values. The four others double twice, and two of them return the
    // sums.
    const std::int64_t times = c.Rank() >= 4 ? 1 : c.Rank() < 2 ? 3 : 2;
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kGradient) == times * 400,
                 c.communicator().BytesSent(Purpose::kGradient), times * 400);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(Communicator, SendsBetweenPairsWithoutMixingPurposes) {
  Ranks ranks(3, [](Group& c) {
    std::vector<std::byte> a(300000, std::byte(c.Rank())), b(10, std::byte(c.Rank() + 100)),
        from(300000), other(10);
    const int right = (c.Rank() + 1) % 3, left = (c.Rank() + 2) % 3;
    Request receive_b = c.Receive(left, Purpose::kParameter, other);
    Request send_a = c.Send(right, Purpose::kActivation, a);
    Request send_b = c.Send(right, Purpose::kParameter, b);
    Request receive_a = c.Receive(left, Purpose::kActivation, from);
    for (Request* r : {&receive_b, &send_a, &send_b, &receive_a}) {
      RANK_REQUIRE(r->Wait(In(std::chrono::seconds(60))));
    }
    return from[299999] == std::byte(left) && other[9] == std::byte(left + 100);
  });
  EXPECT_TRUE(ranks.AllGood());
}

/// All ranks are here, and their links are open.
bool Meet(Group& c) {
  double one[1] = {1};
  RANK_REQUIRE(c.AllReduce(Purpose::kStatistic, std::span<double>(one))
                   .Wait(In(std::chrono::seconds(60)))
                   .has_value());
  return true;
}

/// Rank 0 sends `sent` bytes where rank 1 expects `expected`. Late: they arrive before the receive
/// is posted, as a later message proves.
void ExpectLengthError(std::size_t sent, std::size_t expected, bool late, const char* cause) {
  Ranks ranks(2, [=](Group& c) {
    RANK_REQUIRE(Meet(c));
    std::vector<std::byte> data(c.Rank() == 0 ? sent : expected), after(1);
    if (c.Rank() == 0) {
      Request first = c.Send(1, Purpose::kActivation, data);
      Request second = c.Send(1, Purpose::kParameter, after);
      RANK_REQUIRE(first.Wait(In(std::chrono::seconds(60))));
      RANK_REQUIRE(second.Wait(In(std::chrono::seconds(60))));
      RANK_REQUIRE(Meet(c));
      return true;
    }
    Request wrong;
    if (!late) wrong = c.Receive(0, Purpose::kActivation, data);
    RANK_REQUIRE(c.Receive(0, Purpose::kParameter, after).Wait(In(std::chrono::seconds(60))));
    if (late) wrong = c.Receive(0, Purpose::kActivation, data);
    const auto done = wrong.Wait(In(std::chrono::seconds(60)));
    RANK_REQUIRE(!done);
    RANK_REQUIRE(done.error().peer == 0, done.error().peer);
    RANK_REQUIRE(done.error().cause == cause, done.error().cause, cause);
    RANK_REQUIRE(Meet(c));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood()) << sent << " bytes for " << expected << (late ? ", late" : "");
}

TEST(Communicator, AMessageOfAnotherLengthIsAnErrorThatSaysSo) {
  for (bool late : {false, true}) {
    ExpectLengthError(10, 100, late, "the message has 10 bytes, not 100");
    ExpectLengthError(0, 100, late, "the message has 0 bytes, not 100");
    ExpectLengthError(20'000, 30'000, late, "the message has 20000 bytes, not 30000");
    ExpectLengthError(3'000'000, 4'000'000, late, "the message has 3000000 bytes, not 4000000");
    ExpectLengthError(100, 10, late, "the message is longer than 10 bytes");
    ExpectLengthError(30'000, 20'000, late, "the message is longer than 20000 bytes");
    ExpectLengthError(4'000'000, 3'000'000, late, "the message is longer than 3000000 bytes");
  }
}

TEST(Communicator, CountsItsThreadsProcessorTime) {
  Ranks ranks(2, [](Group& c) {
    const double before = c.communicator().CpuSeconds();
    std::vector<float> data(1 << 20);
    for (int i = 0; i < 10; ++i) {
      RANK_REQUIRE(c.AllReduce(Purpose::kGradient, std::span<float>(data))
                       .Wait(In(std::chrono::seconds(60))));
    }
    RANK_REQUIRE(before > 0, before);
    RANK_REQUIRE(c.communicator().CpuSeconds() > before, c.communicator().CpuSeconds(), before);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(Communicator, AReceiveThatNothingComesForMissesItsDeadlineAndGivesItsBufferBack) {
  Ranks ranks(2, [](Group& c) {
    std::vector<std::byte> data(100);
    auto waited =
        c.Receive(1 - c.Rank(), Purpose::kActivation, data).Wait(In(std::chrono::seconds(1)));
    RANK_REQUIRE(!waited);
    RANK_REQUIRE(waited.error().operation == "receive of activations", waited.error().operation);
    RANK_REQUIRE(waited.error().cause == kMissed, waited.error().cause);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(Communicator, AKilledPeerIsAnErrorNotAHang) {
  SharedCount ended;
  Ranks ranks(4, [&](Group& c) {
    std::vector<float> data(100000, 1.0f);
    const auto whole =
        c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(30)));
    ended.Meet(4);
    if (c.Rank() == 2) ::raise(SIGKILL);
    RANK_REQUIRE(whole);
    for (int i = 0; i < 1000; ++i) {
      const auto done =
          c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(3)));
      if (done) continue;
      return true;
    }
    RANK_REQUIRE(!"sums went on without rank 2");
    return true;
  });
  for (std::size_t rank : {0u, 1u, 3u}) EXPECT_TRUE(ranks.Good(rank));
  EXPECT_TRUE(WIFSIGNALED(ranks.Join(2)));
}

/// What another thread learns of a rank whose main thread waits and whose operation has begun.
RankStatus StatusWhileItWaits(Transport& transport) {
  for (;;) {
    std::promise<RankStatus> told;
    transport.Post([&] { told.set_value(transport.Status()); });
    RankStatus status = told.get_future().get();
    if (!status.operation.empty() && !status.peers.empty()) return status;
    ::usleep(1000);
  }
}

TEST(Communicator, ARankSaysWhomItWaitsForAndCanBeCalledOutOfIt) {
  SharedCount over;
  Ranks ranks(2, [&over](Group& c) {
    Transport& transport = c.communicator().transport();
    if (c.Rank() == 1) {
      // Its answer to the connection comes while rank 0 closes: nothing may be sent any more, since
      // the buffer is gone.
      std::promise<void> answers;
      transport.Post([&] {
        over.Meet(2);
        ::usleep(100'000);
        answers.set_value();
      });
      answers.get_future().wait();
      ::usleep(300'000);
      return true;
    }
    RankStatus status;
    std::thread other([&] {
      status = StatusWhileItWaits(transport);
      transport.GiveUp();
    });
    std::vector<float> data(100, 1.0f);
    const auto sum = [&] {
      return c.AllReduce(Purpose::kGradient, std::span<float>(data))
          .Wait(In(std::chrono::minutes(4)));
    };
    const auto called_out = sum();
    other.join();
    RANK_REQUIRE(!called_out);
    RANK_REQUIRE(called_out.error().cause == "given up", called_out.error().cause);
    RANK_REQUIRE(status.operation == "all-reduce 0 of gradients", status.operation);
    RANK_REQUIRE(status.peers.size() == 1, status.peers.size());
    const PeerTraffic& peer = status.peers[0];
    RANK_REQUIRE(peer.rank == 1 && peer.awaited == 1, peer.rank, peer.awaited);
    RANK_REQUIRE(peer.sent == 1 && peer.sent_bytes == 400, peer.sent, peer.sent_bytes);
    RANK_REQUIRE(peer.received == 0, peer.received);
    RANK_REQUIRE(!sum());  // nothing is waited for any more
    over.Meet(2);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(Communicator, AStoppedPeerMissesTheDeadline) {
  Ranks ranks(2, [](Group& c) {
    std::vector<float> data(1 << 20, 1.0f);
    RANK_REQUIRE(
        c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(30))));
    if (c.Rank() == 1) ::raise(SIGSTOP);
    const auto begin = std::chrono::steady_clock::now();
    auto waited =
        c.AllReduce(Purpose::kGradient, std::span<float>(data)).Wait(In(std::chrono::seconds(2)));
    RANK_REQUIRE(!waited);
    RANK_REQUIRE(waited.error().cause == kMissed, waited.error().cause);
    RANK_REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
    return true;
  });
  EXPECT_TRUE(ranks.Good(0));
}

}  // namespace
}  // namespace adaptive_train::communicator_test
