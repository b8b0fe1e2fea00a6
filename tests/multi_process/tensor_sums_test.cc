// Sums of tensor ranks, through memory that they share and by messages: the same bits on all ranks.
#include "runtime/train/tensor_sums.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train {
namespace {

/// What rank `rank` adds to element i in the given round: numbers whose sums show who is missing.
float Part(int rank, std::size_t i, int round) {
  return static_cast<float>(static_cast<int>(i % 61) - 30 + round) * 0.25F +
         static_cast<float>(rank + 1) * 8;
}

/// Sums of lengths below, at and above a piece, one right after the other.
template <class T>
bool SumsRight(Group& group, bool shares) {
  auto memory = shares ? TensorSums<T>::MemoryOf(group) : std::nullopt;
  RANK_REQUIRE(memory.has_value() == shares);
  kernels::cpu::CpuDevice<T> device(1);
  StepMeasure measure(group.communicator());
  TensorSums<T> sums(group, std::move(memory), device, measure);
  const TensorRanks<T> ranks = sums.Ranks();
  RANK_REQUIRE(ranks.part.rank == group.Rank() && ranks.part.ranks == group.Size());
  int round = 0;
  for (const std::size_t size : {1UL, 0UL, 1000UL, 262144UL, 600000UL, 7UL, 262145UL}) {
    for (int again = 0; again < 4; ++again, ++round) {
      std::vector<T> values;
      std::vector<float> floats;
      for (std::size_t i = 0; i < size; ++i) {
        floats.push_back(Part(group.Rank(), i, round));
        values.push_back(kernels::Rounded<T>(floats.back()));
      }
      ranks.sum(values);
      ranks.sum_on_host(floats);
      for (std::size_t i = 0; i < size; ++i) {
        float expected = 0;
        for (int rank = 0; rank < group.Size(); ++rank) expected += Part(rank, i, round);
        RANK_REQUIRE(kernels::ToFloat(values[i]) == expected, round, size, i, expected,
                     kernels::ToFloat(values[i]));
        RANK_REQUIRE(floats[i] == expected, round, size, i, expected, floats[i]);
      }
    }
  }
  RANK_REQUIRE(*ranks.waited_s > 0);
  return true;
}

TEST(TensorSums, AreRightThroughSharedMemoryAndByMessages) {
  for (const int ranks : {2, 3, 4}) {
    for (const bool shares : {true, false}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, shared memory " << shares);
      EXPECT_TRUE(Ranks(ranks, [shares](Group& group) {
                    return SumsRight<float>(group, shares);
                  }).AllGood());
    }
  }
}

// A quarter is exact in both formats.
TEST(TensorSums, AreRightIn16Bits) {
  for (const bool shares : {true, false}) {
    EXPECT_TRUE(Ranks(2, [shares](Group& group) {
                  return SumsRight<kernels::Float16>(group, shares);
                }).AllGood());
  }
}

/// Each rank has its part of lengths below, at and above a piece; then all have all.
bool GathersRight(Group& group, bool shares) {
  auto memory = shares ? TensorSums<float>::MemoryOf(group) : std::nullopt;
  kernels::cpu::CpuDevice<float> device(1);
  StepMeasure measure(group.communicator());
  TensorSums<float> sums(group, std::move(memory), device, measure);
  const TensorRanks<float> ranks = sums.Ranks();
  for (const std::size_t size : {0UL, 1UL, 2UL, 4099UL, 3UL << 20, (5UL << 20) + 3, 8UL}) {
    for (std::size_t again = 0; again < 3; ++again) {
      const auto value = [&](std::size_t i) {
        return static_cast<std::byte>(i * 31 + i / 251 + again);
      };
      std::vector<std::byte> whole(size, std::byte{0xee});
      const ElementRange own = ranks.part.Of(static_cast<std::int64_t>(size));
      for (auto i = own.begin; i < own.end; ++i)
        whole[static_cast<std::size_t>(i)] = value(static_cast<std::size_t>(i));
      ranks.gather(whole);
      for (std::size_t i = 0; i < size; ++i) RANK_REQUIRE(whole[i] == value(i), size, i, again);
    }
  }
  return true;
}

TEST(TensorSums, GatherThroughSharedMemoryAndByMessages) {
  for (const int ranks : {2, 3, 4}) {
    for (const bool shares : {true, false}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, shared memory " << shares);
      EXPECT_TRUE(
          Ranks(ranks, [shares](Group& group) { return GathersRight(group, shares); }).AllGood());
    }
  }
}

TEST(SharedMemory, IsRefusedToAllWhereTheFirstCannotMakeIt) {
  EXPECT_TRUE(Ranks(3, [](Group& group) {
                double connected[1] = {};
                RANK_REQUIRE(group.AllReduce(Purpose::kStatistic, std::span<double>(connected))
                                 .Wait(In(std::chrono::seconds(60))));
                if (group.Rank() == 0) {
                  const rlimit small{1024, 1024};
                  ::signal(SIGXFSZ, SIG_IGN);
                  RANK_REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
                }
                const auto memory = SharedMemory::Among(group, 4096, In(std::chrono::seconds(60)));
                RANK_REQUIRE(memory);
                RANK_REQUIRE(!memory->has_value());
                return true;
              }).AllGood());
}

}  // namespace
}  // namespace adaptive_train
