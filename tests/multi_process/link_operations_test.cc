// Pings and streams between two processes, and ends whose peer misbehaves.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "runtime/measure/link_ping.h"
#include "runtime/measure/link_stream.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::link_operations_test {
namespace {

LinkEnd End(Group& c) {
  return {&c.communicator().transport(), 1 - c.Rank(), kForeignTags | (7u << 8)};
}

std::shared_ptr<LinkStream> Stream(Group& c, bool sends) {
  return std::make_shared<LinkStream>("bandwidth of n1 - n2", End(c), sends, 1e-4,
                                      StreamJudgement{192 << 10, 0.08, 0.24, 0.1});
}

/// Opens the connection as a rank's wire-up does: both ends at once.
bool Open(Group& c) {
  double one[1] = {1};
  RANK_REQUIRE(c.AllReduce(Purpose::kStatistic, std::span<double>(one))
                   .Wait(In(std::chrono::seconds(30)))
                   .has_value());
  return true;
}

bool Runs(Group& c, const std::shared_ptr<LinkOperation>& operation) {
  RANK_REQUIRE(c.Launch(operation).Wait(In(std::chrono::seconds(30))));
  return true;
}

/// The failure of an operation on rank `rank`, whose peer does `other`.
void ExpectFailure(int rank, const Body& other,
                   const std::function<std::shared_ptr<LinkOperation>(Group&)>& make,
                   std::chrono::seconds deadline, const std::string& cause) {
  Ranks ranks(2, [&](Group& c) {
    RANK_REQUIRE(Open(c));
    if (c.Rank() != rank) return other(c);
    const auto done = c.Launch(make(c)).Wait(In(deadline));
    RANK_REQUIRE(!done);
    RANK_REQUIRE(done.error().cause == cause, done.error().cause, cause);
    RANK_REQUIRE(done.error().peer == 1 - rank, done.error().peer, 1 - rank);
    return true;
  });
  EXPECT_TRUE(ranks.Good(static_cast<std::size_t>(rank)));
}

/// Sends one message of 8 bytes under a kind of its own, then stays a while.
template <class T>
Body Sender(std::uint64_t kind, T value) {
  return [kind, value](Group& c) {
    const double greeting = 0;
    c.communicator().transport().Post([&c, kind, &value, &greeting] {
      c.communicator().transport().Send(1 - c.Rank(), End(c).tag | 7, &greeting, sizeof greeting,
                                        Sending::kWhenAsked, [](const std::string&) {});
      c.communicator().transport().Send(1 - c.Rank(), End(c).tag | kind, &value, sizeof value,
                                        Sending::kWhenAsked, [](const std::string&) {});
    });
    ::sleep(30);
    return true;
  };
}

TEST(LinkPing, BothEndsKnowTheSameLatency) {
  Ranks ranks(2, [](Group& c) {
    const auto ping = std::make_shared<LinkPing>("latency", End(c), c.Rank() == 0);
    RANK_REQUIRE(Runs(c, ping));
    double sum[1] = {c.Rank() == 0 ? ping->Latency() : -ping->Latency()};
    const auto agreed =
        c.AllReduce(Purpose::kStatistic, std::span<double>(sum)).Wait(In(std::chrono::seconds(9)));
    RANK_REQUIRE(agreed);
    RANK_REQUIRE(sum[0] == 0, sum[0]);
    RANK_REQUIRE(ping->Latency() > 0, ping->Latency());
    RANK_REQUIRE(ping->Latency() < 1, ping->Latency());
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(LinkStream, IsMeasuredAtItsReceiver) {
  Ranks ranks(2, [](Group& c) {
    const auto stream = Stream(c, c.Rank() == 0);
    RANK_REQUIRE(Open(c));
    RANK_REQUIRE(Runs(c, stream));
    const double rate = stream->Received().bytes_per_second;
    RANK_REQUIRE(c.Rank() == 0 ? rate == 0 : std::isfinite(rate) && rate > 1e6, rate);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(LinkStream, APeerThatNeverComesIsADeadlineMissed) {
  ExpectFailure(
      0, [](Group&) { return ::sleep(30) == 0; }, [](Group& c) { return Stream(c, false); },
      std::chrono::seconds(1), "missed its deadline");
}

TEST(LinkStream, AGrantThatIsTooLargeIsRefused) {
  ExpectFailure(
      0, Sender(4, std::uint64_t{1} << 40), [](Group& c) { return Stream(c, true); },
      std::chrono::seconds(20), "the peer granted a chunk that is too large");
}

TEST(LinkPing, ALatencyThatIsNoneIsRefused) {
  ExpectFailure(
      1, Sender(1, std::nan("")),
      [](Group& c) { return std::make_shared<LinkPing>("latency", End(c), false); },
      std::chrono::seconds(20), "the peer sent no latency");
}

}  // namespace
}  // namespace adaptive_train::link_operations_test
