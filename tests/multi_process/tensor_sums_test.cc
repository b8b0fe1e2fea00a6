// Sums of tensor ranks, through memory that they share and by messages: the same bits on all ranks.
#include "runtime/train/tensor_sums.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "tests/fakes/guarded_device.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::tensor_sums_test {
namespace {

/// What rank `rank` adds to element i in the given round: numbers whose sums show who is missing.
float Part(int rank, std::size_t i, int round) {
  return static_cast<float>(static_cast<int>(i % 61) - 30 + round) * 0.25F +
         static_cast<float>(rank + 1) * 8;
}

/// A copy of a vector in a device's memory, which the vector gets back in the end.
template <class E>
class OnDevice {
 public:
  OnDevice(kernels::DeviceMemory& memory, std::vector<E>& host)
      : host_(host), there_(memory, host.size()) {
    there_.CopyFromHost(host);
  }
  ~OnDevice() { there_.CopyToHost(host_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  std::span<E> span() { return there_.span(); }
  E* data() { return there_.data(); }

 private:
  std::vector<E>& host_;
  kernels::Buffer<E> there_;
};

/// Sums of lengths below, at and above a piece, one right after the other. `guarded`: in memory that
/// the host cannot touch.
template <class T>
bool SumsRight(Group& group, bool shares, bool guarded = false) {
  auto memory = shares ? TensorSums<T>::MemoryOf(group) : std::nullopt;
  RANK_REQUIRE(memory.has_value() == shares);
  kernels::cpu::CpuDevice<T> open(1);
  kernels::GuardedDevice<T> closed(open);
  kernels::Device<T>& device = guarded ? static_cast<kernels::Device<T>&>(closed) : open;
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
      ranks.sum(OnDevice<T>(device, values).span());
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

/// Numbers whose sum depends on the order in which they are added.
float Unlike(int rank, std::size_t i) {
  return 1.0F / static_cast<float>(3 + 7 * rank + static_cast<int>(i % 113));
}

float TreeOf(int first, int count, std::size_t i) {
  if (count == 1) return Unlike(first, i);
  return TreeOf(first, count / 2, i) + TreeOf(first + count / 2, count / 2, i);
}

bool AddsAsATree(Group& group, bool shares) {
  auto memory = shares ? TensorSums<float>::MemoryOf(group) : std::nullopt;
  RANK_REQUIRE(memory.has_value() == shares);
  kernels::cpu::CpuDevice<float> device(1);
  StepMeasure measure(group.communicator());
  TensorSums<float> sums(group, std::move(memory), device, measure, true);
  const TensorRanks<float> ranks = sums.Ranks();
  for (const std::size_t size : {1UL, 0UL, 1000UL, 262144UL, 600000UL, 262145UL}) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = Unlike(group.Rank(), i);
    std::vector<float> on_host = values;
    ranks.sum(values);
    ranks.sum_on_host(on_host);
    std::size_t in_order = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const float expected = TreeOf(0, group.Size(), i);
      RANK_REQUIRE(values[i] == expected, size, i, expected, values[i]);
      RANK_REQUIRE(on_host[i] == expected, size, i, expected, on_host[i]);
      float chain = Unlike(0, i);
      for (int rank = 1; rank < group.Size(); ++rank) chain += Unlike(rank, i);
      in_order += chain == expected ? 1 : 0;
    }
    // Otherwise another order would pass as well.
    RANK_REQUIRE(group.Size() < 4 || size < 1000 || in_order < size);
  }
  return true;
}

TEST(TensorSums, AreABalancedTreeIfTheyAreToBeReproducible) {
  for (const int ranks : {2, 4, 8}) {
    for (const bool shares : {true, false}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, shared memory " << shares);
      EXPECT_TRUE(
          Ranks(ranks, [shares](Group& group) { return AddsAsATree(group, shares); }).AllGood());
    }
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
      ranks.gather(whole, 1);
      for (std::size_t i = 0; i < size; ++i) RANK_REQUIRE(whole[i] == value(i), size, i, again);
    }
  }
  return true;
}

/// Rows of several bytes are parts' pieces.
bool GathersRows(Group& group, bool shares) {
  auto memory = shares ? TensorSums<float>::MemoryOf(group) : std::nullopt;
  kernels::cpu::CpuDevice<float> device(1);
  StepMeasure measure(group.communicator());
  TensorSums<float> sums(group, std::move(memory), device, measure);
  const TensorRanks<float> ranks = sums.Ranks();
  for (const std::size_t rows : {0UL, 1UL, 7UL, 100003UL}) {
    std::vector<float> whole(rows * 5, -1);
    const ElementRange own = ranks.part.Of(static_cast<std::int64_t>(rows));
    for (auto i = static_cast<std::size_t>(5 * own.begin);
         i < static_cast<std::size_t>(5 * own.end); ++i)
      whole[i] = static_cast<float>(i % 8191);
    ranks.gather(std::as_writable_bytes(std::span(whole)), 5 * sizeof(float));
    for (std::size_t i = 0; i < whole.size(); ++i)
      RANK_REQUIRE(whole[i] == static_cast<float>(i % 8191), rows, i, whole[i]);
  }
  return true;
}

/// Each rank gets its rows of the sum, with the residual, which may be where the sum goes.
template <class T>
bool SumsRows(Group& group, bool shares, bool guarded = false) {
  auto memory = shares ? TensorSums<T>::MemoryOf(group) : std::nullopt;
  kernels::cpu::CpuDevice<T> open(1);
  kernels::GuardedDevice<T> closed(open);
  kernels::Device<T>& device = guarded ? static_cast<kernels::Device<T>&>(closed) : open;
  StepMeasure measure(group.communicator());
  TensorSums<T> sums(group, std::move(memory), device, measure);
  const TensorRanks<T> ranks = sums.Ranks();
  constexpr std::int64_t kColumns = 6;
  int round = 0;
  for (const std::int64_t rows : {0, 1, 2, 7, 100003, 3}) {
    for (const int residual : {0, 1, 2}) {  // none, apart, in place
      ++round;
      const ElementRange own = ranks.part.Of(rows);
      const auto first = static_cast<std::size_t>(own.begin * kColumns);
      std::vector<T> whole, result(static_cast<std::size_t>(own.size() * kColumns));
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows * kColumns); ++i)
        whole.push_back(kernels::Rounded<T>(Part(group.Rank(), i, round)));
      std::vector<T> more(result.size(), kernels::Rounded<T>(3));
      if (residual == 2) result = more;
      {
        OnDevice<T> from(device, whole), beside(device, more), to(device, result);
        const T* added = residual == 0 ? nullptr : residual == 1 ? beside.data() : to.data();
        ranks.sum_rows({rows, kColumns, from.data(), added, to.data()});
      }
      for (std::size_t i = 0; i < result.size(); ++i) {
        float expected = residual == 0 ? 0 : 3;
        for (int rank = 0; rank < group.Size(); ++rank) expected += Part(rank, first + i, round);
        RANK_REQUIRE(kernels::ToFloat(result[i]) == expected, rows, residual, i, expected,
                     kernels::ToFloat(result[i]));
      }
    }
  }
  return true;
}

TEST(TensorSums, ShareRows) {
  for (const int ranks : {2, 3, 4}) {
    for (const bool shares : {true, false}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, shared memory " << shares);
      EXPECT_TRUE(Ranks(ranks, [shares](Group& group) {
                    return GathersRows(group, shares) && SumsRows<float>(group, shares) &&
                           SumsRows<kernels::Float16>(group, shares);
                  }).AllGood());
    }
  }
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

/// Ranks by twos or fours share a head: each gets the others' columns of keys and values, and sums of
/// its own.
template <class T>
bool SharesHeads(Group& group, bool shares, std::int64_t sharing, bool guarded = false) {
  auto memory = shares ? TensorSums<T>::MemoryOf(group) : std::nullopt;
  kernels::cpu::CpuDevice<T> open(1);
  kernels::GuardedDevice<T> closed(open);
  kernels::Device<T>& device = guarded ? static_cast<kernels::Device<T>&>(closed) : open;
  StepMeasure measure(group.communicator());
  TensorSums<T> sums(group, std::move(memory), device, measure);
  const TensorRanks<T> ranks = sums.Ranks();
  constexpr std::int64_t kQueries = 3, kHead = 8;
  const int first = group.Rank() - group.Rank() % static_cast<int>(sharing);
  const auto value = [](std::int64_t row, std::int64_t of, std::int64_t column, int rank) {
    return static_cast<float>((row * 5 + of * 3 + column + rank) % 31);
  };
  for (const std::int64_t rows : {0, 1, 7, 40000, 3}) {
    std::vector<T> part(static_cast<std::size_t>(rows * (kQueries + 2 * kHead / sharing)));
    std::vector<T> whole(static_cast<std::size_t>(rows * (kQueries + 2 * kHead)));
    const SharedHead<T> head{rows, kQueries, kHead, sharing, part.data(), whole.data()};
    const std::int64_t own = (group.Rank() - first) * head.PartSize();
    const auto on_device = [&](const auto& call) {
      OnDevice<T> of_part(device, part), of_whole(device, whole);
      call({rows, kQueries, kHead, sharing, of_part.data(), of_whole.data()});
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      std::fill_n(head.PartRow(row), kQueries, kernels::Rounded<T>(value(row, 0, 1, 2)));
      for (const std::int64_t of : {0, 1})
        for (std::int64_t i = 0; i < head.PartSize(); ++i)
          head.InPart(row, of)[i] = kernels::Rounded<T>(value(row, of, own + i, first));
    }
    on_device(ranks.gather_head);
    for (std::int64_t row = 0; row < rows; ++row) {
      RANK_REQUIRE(kernels::ToFloat(head.WholeRow(row)[kQueries - 1]) == value(row, 0, 1, 2));
      for (const std::int64_t of : {0, 1})
        for (std::int64_t i = 0; i < kHead; ++i) {
          RANK_REQUIRE(kernels::ToFloat(head.InWhole(row, of)[i]) == value(row, of, i, first));
          head.InWhole(row, of)[i] = kernels::Rounded<T>(value(row, of, i, group.Rank()));
        }
    }
    on_device(ranks.sum_head);
    for (std::int64_t row = 0; row < rows; ++row)
      for (const std::int64_t of : {0, 1})
        for (std::int64_t i = 0; i < head.PartSize(); ++i) {
          float expected = 0;
          for (int rank = first; rank < first + sharing; ++rank)
            expected += value(row, of, own + i, rank);
          RANK_REQUIRE(kernels::ToFloat(head.InPart(row, of)[i]) == expected, row, of, i);
        }
  }
  return true;
}

TEST(TensorSums, GatherAndSumHeadsThatRanksShare) {
  for (const std::int64_t sharing : {2, 4}) {
    for (const bool shares : {true, false}) {
      SCOPED_TRACE(testing::Message() << sharing << " share, shared memory " << shares);
      EXPECT_TRUE(Ranks(4, [=](Group& group) {
                    return SharesHeads<float>(group, shares, sharing) &&
                           SharesHeads<kernels::BFloat16>(group, shares, sharing);
                  }).AllGood());
    }
  }
}

TEST(TensorSums, AreTheSameInMemoryThatTheHostCannotTouch) {
  for (const bool shares : {true, false}) {
    SCOPED_TRACE(testing::Message() << "shared memory " << shares);
    EXPECT_TRUE(Ranks(2, [shares](Group& group) {
                  return SumsRight<float>(group, shares, true) &&
                         SumsRight<kernels::Float16>(group, shares, true) &&
                         SumsRows<float>(group, shares, true) &&
                         SumsRows<kernels::Float16>(group, shares, true) &&
                         SharesHeads<kernels::BFloat16>(group, shares, 2, true);
                }).AllGood());
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
}  // namespace adaptive_train::tensor_sums_test
