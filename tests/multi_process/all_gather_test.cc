// Chunks of different owners, gathered by real processes.
#include "runtime/comm/all_gather.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train {
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

Request Gather(Communicator& c, std::vector<std::span<std::byte>> chunks) {
  return c.Launch(std::make_shared<AllGather>("all-gather", c.NextLane(Purpose::kParameter),
                                              std::move(chunks)));
}

class AllGatherOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllGatherOf, testing::Values(1, 2, 3, 4, 7));

TEST_P(AllGatherOf, EveryoneGetsEveryOwnersChunk) {
  Ranks ranks(GetParam(), [](Communicator& c) {
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
      if (!Gather(c, Cut(data, lengths)).Wait(In(std::chrono::seconds(60)))) return false;
      at = 0;
      for (int r = 0; r < c.Size(); ++r) {
        for (std::size_t i = 0; i < lengths[static_cast<std::size_t>(r)]; ++i, ++at) {
          if (data[at] != static_cast<float>(r * 1000) + static_cast<float>(i % 997)) return false;
        }
      }
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(AllGather, AChunkOfAnotherLengthIsAnErrorThatNamesItsRank) {
  Ranks ranks(2, [](Communicator& c) {
    std::vector<float> data(20);
    const std::size_t own = c.Rank() == 1 ? 9 : 10;
    std::vector<std::size_t> lengths = {10, c.Rank() == 1 ? own : 10};
    const auto done = Gather(c, Cut(data, lengths)).Wait(In(std::chrono::seconds(30)));
    return c.Rank() == 1 || (!done && done.error().peer == 1);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(AllGather, ASilentRankIsMissedAtTheDeadline) {
  Ranks ranks(2, [](Communicator& c) {
    std::vector<float> data(20);
    if (c.Rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      return true;
    }
    const auto done = Gather(c, Cut(data, {10, 10})).Wait(In(std::chrono::seconds(1)));
    return !done;
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train
