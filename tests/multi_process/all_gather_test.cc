// Chunks of different owners, gathered and summed by real processes.
#include "runtime/comm/all_gather.h"
#include "runtime/comm/reduce_scatter.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::all_gather_test {
namespace {

std::vector<std::span<std::byte>> Cut(std::vector<float>& data,
                                      const std::vector<std::size_t>& lengths) {
  std::vector<std::span<std::byte>> chunks;
  std::size_t at = 0;
  for (const std::size_t length : lengths) {
    chunks.push_back(std::as_writable_bytes(std::span(data).subspan(at, length)));
    at += length;
  }
  return chunks;
}

Request Gather(Group& c, std::vector<std::span<std::byte>> chunks,
               const std::vector<std::vector<int>>& nodes = {}) {
  return c.Launch(std::make_shared<AllGather>("all-gather", c.NextLane(Purpose::kParameter),
                                              std::move(chunks), nodes));
}

/// Rank r is on node r modulo `count`.
std::vector<std::vector<int>> Nodes(int ranks, int count) {
  std::vector<std::vector<int>> nodes(static_cast<std::size_t>(count));
  for (int rank = 0; rank < ranks; ++rank)
    nodes[static_cast<std::size_t>(rank % count)].push_back(rank);
  return nodes;
}

class AllGatherOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllGatherOf, testing::Values(1, 2, 3, 4, 7));

bool EveryoneGetsAll(Group& c, const std::vector<std::vector<int>>& nodes) {
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{100003}}) {
    std::vector<std::size_t> lengths;
    std::size_t size = 0;
    for (int r = 0; r < c.Size(); ++r) {
      lengths.push_back(unit * static_cast<std::size_t>(r % 3));  // rank 0's is empty
      size += lengths.back();
    }
    std::vector<float> data(size, -1.0f);
    std::size_t at = 0;
    for (int r = 0; r < c.Size(); ++r) {
      const std::size_t length = lengths[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < length && r == c.Rank(); ++i)
        data[at + i] = static_cast<float>(r * 1000) + static_cast<float>(i % 997);
      at += length;
    }
    RANK_REQUIRE(Gather(c, Cut(data, lengths), nodes).Wait(In(std::chrono::seconds(60))));
    at = 0;
    for (int r = 0; r < c.Size(); ++r) {
      for (std::size_t i = 0; i < lengths[static_cast<std::size_t>(r)]; ++i, ++at) {
        RANK_REQUIRE(data[at] == static_cast<float>(r * 1000) + static_cast<float>(i % 997),
                     data[at], static_cast<float>(r * 1000) + static_cast<float>(i % 997));
      }
    }
  }
  return true;
}

TEST_P(AllGatherOf, EveryoneGetsEveryOwnersChunk) {
  Ranks ranks(GetParam(), [](Group& c) { return EveryoneGetsAll(c, {}); });
  EXPECT_TRUE(ranks.AllGood());
}

class AllGatherByNodes : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(RanksAndNodes, AllGatherByNodes,
                         testing::Values(std::pair{4, 2}, std::pair{6, 2}, std::pair{6, 3},
                                         std::pair{3, 3}, std::pair{8, 4}));

TEST_P(AllGatherByNodes, EveryoneGetsEveryOwnersChunk) {
  const auto nodes = Nodes(GetParam().first, GetParam().second);
  Ranks ranks(GetParam().first, [&](Group& c) { return EveryoneGetsAll(c, nodes); });
  EXPECT_TRUE(ranks.AllGood());
}

// A rank sends its own chunk to two ranks on its node and to one on each of two others. It forwards
// chunks from those to two ranks each.
TEST(AllGather, PassesOnInsideNodesWhatOneRankOfThemReceived) {
  const auto nodes = Nodes(9, 3);
  Ranks ranks(9, [&](Group& c) {
    std::vector<float> data(900);
    RANK_REQUIRE(Gather(c, Cut(data, std::vector<std::size_t>(9, 100)), nodes)
                     .Wait(In(std::chrono::seconds(60))));
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kParameter) == 400 * (2 + 2 + 2 * 2),
                 c.communicator().BytesSent(Purpose::kParameter), 400 * (2 + 2 + 2 * 2));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

class ReduceScatterOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ReduceScatterOf, testing::Values(1, 2, 3, 4, 7));

TEST_P(ReduceScatterOf, OwnersGetTheSumsAndTheRestStays) {
  Ranks ranks(GetParam(), [](Group& c) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{10007}}) {
      std::vector<float> data(length * static_cast<std::size_t>(c.Size()));
      std::vector<std::span<float>> parts;
      for (std::size_t r = 0; r < static_cast<std::size_t>(c.Size()); ++r)
        parts.push_back(std::span(data).subspan(r * length, length));
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<float>(i % 1013) + static_cast<float>(c.Rank());
      const std::vector<float> before(data);
      auto sum =
          std::make_shared<ReduceScatter>("reduce-scatter", c.NextLane(Purpose::kGradient), parts);
      RANK_REQUIRE(c.Launch(std::move(sum)).Wait(In(std::chrono::seconds(60))));
      for (std::size_t i = 0; i < data.size(); ++i) {
        const bool own = i / length == static_cast<std::size_t>(c.Rank());
        const auto n = static_cast<float>(c.Size());
        const float all = n * static_cast<float>(i % 1013) + n * (n - 1) / 2;
        RANK_REQUIRE(data[i] == (own ? all : before[i]), data[i], (own ? all : before[i]));
      }
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(AllGather, AChunkOfAnotherLengthIsAnErrorThatNamesItsRank) {
  Ranks ranks(2, [](Group& c) {
    std::vector<float> data(20);
    const std::size_t own = c.Rank() == 1 ? 9 : 10;
    std::vector<std::size_t> lengths = {10, c.Rank() == 1 ? own : 10};
    const auto done = Gather(c, Cut(data, lengths)).Wait(In(std::chrono::seconds(30)));
    if (c.Rank() == 1) return true;
    RANK_REQUIRE(!done);
    RANK_REQUIRE(done.error().peer == 1, done.error().peer, done.error().cause);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(AllGather, ASilentRankIsMissedAtTheDeadline) {
  Ranks ranks(2, [](Group& c) {
    std::vector<float> data(20);
    if (c.Rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      return true;
    }
    const auto done = Gather(c, Cut(data, {10, 10})).Wait(In(std::chrono::seconds(1)));
    RANK_REQUIRE(!done);
    RANK_REQUIRE(done.error().cause == kMissed, done.error().cause);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train::all_gather_test
