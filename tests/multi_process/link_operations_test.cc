// Pings and streams between two processes, and ends whose peer does what it must not.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "runtime/measure/link_ping.h"
#include "runtime/measure/link_stream.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train {
namespace {

LinkEnd End(Group& c) { return {&c.communicator().transport(), 1 - c.Rank(), kForeignTags | (7u << 8)}; }

std::shared_ptr<LinkStream> Stream(Group& c, bool sends) {
  return std::make_shared<LinkStream>("bandwidth of n1 - n2", End(c), sends, 1e-4,
                                      StreamJudgement{192 << 10, 0.08, 0.24, 0.1});
}

/// Opens the connection as a rank's wire-up does: both ends at once.
bool Open(Group& c) {
  double one[1] = {1};
  return c.AllReduce(Purpose::kStatistic, std::span<double>(one))
      .Wait(In(std::chrono::seconds(30)))
      .has_value();
}

bool Runs(Group& c, const std::shared_ptr<LinkOperation>& operation) {
  return c.Launch(operation).Wait(In(std::chrono::seconds(30))).has_value();
}

/// The failure of an operation on rank `rank`, whose peer does `other`.
void ExpectFailure(int rank, const Body& other,
                   const std::function<std::shared_ptr<LinkOperation>(Group&)>& make,
                   std::chrono::seconds deadline, const std::string& cause) {
  Ranks ranks(2, [&](Group& c) {
    if (!Open(c)) return false;
    if (c.Rank() != rank) return other(c);
    const auto done = c.Launch(make(c)).Wait(In(deadline));
    if (done) return false;
    if (done.error().cause != cause)
      std::fprintf(stderr, "cause: %s\n", done.error().cause.c_str());
    return done.error().cause == cause && done.error().peer == 1 - rank;
  });
  EXPECT_EQ(ranks.Join(static_cast<std::size_t>(rank)), 0);
}

/// Sends one message of 8 bytes under a kind of its own choice, then stays a while.
template <class T>
Body Sender(std::uint64_t kind, T value) {
  return [kind, value](Group& c) {
    const double greeting = 0;
    c.communicator().transport().Post([&c, kind, &value, &greeting] {
      c.communicator().transport().Send(1 - c.Rank(), End(c).tag | 7, &greeting, sizeof greeting,
                       [](const std::string&) {});
      c.communicator().transport().Send(1 - c.Rank(), End(c).tag | kind, &value, sizeof value,
                       [](const std::string&) {});
    });
    ::sleep(30);
    return true;
  };
}

TEST(LinkPing, BothEndsKnowTheSameLatency) {
  Ranks ranks(2, [](Group& c) {
    const auto ping = std::make_shared<LinkPing>("latency", End(c), c.Rank() == 0);
    if (!Runs(c, ping)) return false;
    double sum[1] = {c.Rank() == 0 ? ping->Latency() : -ping->Latency()};
    const auto agreed =
        c.AllReduce(Purpose::kStatistic, std::span<double>(sum)).Wait(In(std::chrono::seconds(9)));
    return agreed && sum[0] == 0 && ping->Latency() > 0 && ping->Latency() < 1;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(LinkStream, IsMeasuredAtItsReceiver) {
  Ranks ranks(2, [](Group& c) {
    const auto stream = Stream(c, c.Rank() == 0);
    if (!Open(c) || !Runs(c, stream)) return false;
    const double rate = stream->Received().bytes_per_second;
    return c.Rank() == 0 ? rate == 0 : std::isfinite(rate) && rate > 1e6;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(LinkStream, APeerThatNeverComesIsADeadlineMissed) {
  ExpectFailure(
      0, [](Group&) { return ::sleep(30) == 0; },
      [](Group& c) { return Stream(c, false); }, std::chrono::seconds(1),
      "missed its deadline");
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
}  // namespace adaptive_train
