// The exchange through owners between real processes: sums for ranks {1, 2, 3, 4, 7, 8, 16} and
// sizes from 0. Also values that are not finite, and a rank that sends invalid messages.
#include "runtime/exchange/owner_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/fakes/faulty_exchange.h"
#include "tests/multi_process/exchanged_bucket.h"
#include "tests/multi_process/forked_ranks.h"
#include "tests/multi_process/shared_count.h"
#include "tests/sanitized.h"

namespace adaptive_train::owner_exchange_test {
namespace {

constexpr std::chrono::seconds kLong{100};

/// One bucket under way.
struct UnderWay {
  MadeBucket made;
  std::vector<float> result;
  std::shared_ptr<OwnerExchange> exchange;
  Request request;
};

UnderWay Launch(Group& c, const MadeBucket& made, bool gather = true,
                std::optional<std::uint64_t> earlier_lane = std::nullopt) {
  UnderWay under{made, std::vector<float>(made.size, -1.0f), nullptr, {}};
  auto order = made.Order(c.Rank(), c.Size(), under.result);
  order.gather = gather;
  order.earlier_lane = earlier_lane;
  under.exchange = std::make_shared<OwnerExchange>(
      "exchange of gradients", c.NextLane(Purpose::kGradient), std::move(order));
  under.request = c.Launch(under.exchange);
  return under;
}

bool SameBits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// The bound of Higham, Accuracy and Stability, section 4.2, for float32; integers have none.
bool NearTheReference(const ExpectedSum& sum, const MadeBucket& made, int ranks) {
  if (made.integers && made.format != ValueFormat::kFloat8)
    return sum.Rounded(made.format) == static_cast<float>(sum.exact);
  return std::abs(sum.single - sum.exact) <= (ranks - 1) * 1.001 * 0x1p-24 * sum.largest;
}

/// Compares every bit of the result and of the own sum. All ranks and runs must give the same.
bool IsRight(Group& c, const UnderWay& under) {
  const MadeBucket& made = under.made;
  const std::size_t begin = made.Begin(c.Rank(), c.Size()),
                    end = made.Begin(c.Rank() + 1, c.Size());
  const auto own = under.exchange->OwnSum();
  RANK_REQUIRE(under.exchange->finite());
  RANK_REQUIRE(own.size() == end - begin, own.size(), end - begin);
  for (std::size_t i = 0; i < made.size; ++i) {
    const ExpectedSum sum(made, c.Size(), i);
    const bool mine = begin <= i && i < end;
    RANK_REQUIRE(NearTheReference(sum, made, c.Size()), i, made.size, made.density, sum.exact);
    RANK_REQUIRE(SameBits(under.result[i], sum.Rounded(made.format)), i, made.size, made.density,
                 under.result[i], sum.exact);
    RANK_REQUIRE(!mine || SameBits(own[i - begin], sum.single), i, own[i - begin], sum.single);
  }
  return true;
}

bool Ends(UnderWay& under) {
  RANK_REQUIRE(under.request.Wait(In(kLong)));
  return true;
}

class Exchange : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Exchange, testing::Values(1, 2, 3, 4, 7, 8, 16));

TEST_P(Exchange, ManyBucketsAtOnceOfAllSizesDensitiesAndFormats) {
  Ranks ranks(GetParam(), [](Group& c) {
    for (int run = 0; run < 2; ++run) {
      // The sums do not depend on the order of arrival.
      ::usleep(static_cast<useconds_t>(3000 * (run == 0 ? c.Rank() : c.Size() - c.Rank())));
      std::vector<UnderWay> buckets;
      std::uint32_t number = 0;
      for (std::size_t size : {0u, 1u, 7u, 97u, 1009u, 65537u}) {
        for (double density : {0.0, 0.01, 0.1, 0.5, 1.0}) {
          for (auto format :
               {ValueFormat::kFloat32, ValueFormat::kBFloat16, ValueFormat::kFloat8}) {
            for (bool integers : {false, true})
              buckets.push_back(Launch(c, {number++, size, density, format, integers}));
          }
        }
      }
      for (UnderWay& under : buckets) {
        RANK_REQUIRE(Ends(under));
        RANK_REQUIRE(IsRight(c, under));
      }
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(OwnerExchange, ValuesThroughZstdHaveTheSameSums) {
  using enum SparseMessageWriter::Lossless;
  const auto bytes = [](SparseMessageWriter::Lossless lossless) {
    const MadeBucket made{1, 65537, 1, ValueFormat::kBFloat16, true, lossless};
    return made.Message(1, made.Chunks(3).pieces[0], 0).size();
  };
  EXPECT_LT(bytes(kZstd), bytes(kNone)) << "else nothing is tried here";
  Ranks ranks(3, [](Group& c) {
    std::vector<UnderWay> buckets;
    std::uint32_t number = 0;
    for (std::size_t size : {0u, 7u, 1009u, 65537u})
      for (auto format : {ValueFormat::kFloat32, ValueFormat::kBFloat16, ValueFormat::kFloat8})
        buckets.push_back(Launch(c, {number++, size, 1, format, true, kZstd}));
    for (UnderWay& under : buckets) {
      RANK_REQUIRE(Ends(under));
      RANK_REQUIRE(IsRight(c, under));
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(OwnerExchange, MillionsOfElements) {
  constexpr std::size_t kElements = kSanitized ? 2'000'000 : 10'000'000;
  Ranks ranks(4, [](Group& c) {
    for (const MadeBucket& made : {MadeBucket{1, kElements, 0.1, ValueFormat::kBFloat16},
                                   MadeBucket{2, kElements, 1, ValueFormat::kFloat32}}) {
      UnderWay under = Launch(c, made);
      RANK_REQUIRE(Ends(under));
      RANK_REQUIRE(IsRight(c, under));
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(Exchange, WithoutGatherOnlyTheOwnersGetTheirSums) {
  Ranks ranks(GetParam(), [](Group& c) {
    const MadeBucket made{5, 1009, 0.3, ValueFormat::kBFloat16};
    UnderWay under = Launch(c, made, false);
    RANK_REQUIRE(Ends(under));
    RANK_REQUIRE(under.exchange->finite());
    const std::size_t begin = made.Begin(c.Rank(), c.Size());
    const std::size_t end = made.Begin(c.Rank() + 1, c.Size());
    for (std::size_t i = 0; i < made.size; ++i) {
      const bool mine = begin <= i && i < end;
      const float expected = mine ? ExpectedSum(made, c.Size(), i).single : -1.0f;
      RANK_REQUIRE(SameBits(under.result[i], expected));
    }
    std::int64_t sent = 0;
    const auto& messages = under.exchange->Order().messages;
    for (int peer = 0; peer < c.Size(); ++peer) {
      if (peer != c.Rank())
        sent += static_cast<std::int64_t>(messages[static_cast<std::size_t>(peer)].size());
    }
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kGradient) == sent,
                 c.communicator().BytesSent(Purpose::kGradient), sent);
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kParameter) == 0,
                 c.communicator().BytesSent(Purpose::kParameter));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(Exchange, GoesWithRingsOfTheSamePurpose) {
  Ranks ranks(GetParam(), [](Group& c) {
    std::vector<std::vector<float>> dense(8, std::vector<float>(5000, 1.0f));
    std::vector<UnderWay> buckets;
    std::vector<Request> rings;
    for (std::uint32_t i = 0; i < 8; ++i) {
      rings.push_back(c.AllReduce(Purpose::kGradient, dense[i]));
      buckets.push_back(Launch(c, {i, 1009, 0.3, ValueFormat::kFloat32}));
    }
    for (std::size_t i = 0; i < 8; ++i) {
      RANK_REQUIRE(Ends(buckets[i]));
      RANK_REQUIRE(IsRight(c, buckets[i]));
      RANK_REQUIRE(rings[i].Wait(In(kLong)));
      RANK_REQUIRE(dense[i][4999] == static_cast<float>(c.Size()), dense[i][4999],
                   static_cast<float>(c.Size()));
    }
    RANK_REQUIRE(c.communicator().CpuSeconds() > 0, c.communicator().CpuSeconds());
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

// Values that are not finite.

/// The first chunk is not finite and all others are right.
bool FirstChunkIsNot(Group& c, const UnderWay& under) {
  const std::size_t end = under.made.Begin(1, c.Size());
  RANK_REQUIRE(!under.exchange->finite());
  RANK_REQUIRE(under.exchange->OwnSum().empty() == (c.Rank() == 0),
               under.exchange->OwnSum().empty(), (c.Rank() == 0));
  for (std::size_t i = 0; i < under.made.size; ++i) {
    const float value = under.result[i];
    RANK_REQUIRE(!(i == 0 && !std::isnan(value)));
    RANK_REQUIRE(!(i > 0 && i < end && value != 0));
    const ExpectedSum sum(under.made, c.Size(), i);
    RANK_REQUIRE(!(i >= end && !SameBits(value, sum.Rounded(under.made.format))));
  }
  return true;
}

/// What rank `from` sends to owner 0 is replaced.
bool GivesNotFinite(Group& c, ValueFormat format,
                    const std::function<MessageBytes(PieceLengths)>& message) {
  UnderWay under{{3, 100, 1, format}, std::vector<float>(100), nullptr, {}};
  auto order = under.made.Order(c.Rank(), c.Size(), under.result);
  if (c.Rank() < 2) order.messages[0] = message(order.chunks.pieces[0]);
  under.exchange =
      std::make_shared<OwnerExchange>("exchange", c.NextLane(Purpose::kGradient), std::move(order));
  under.request = c.Launch(under.exchange);
  RANK_REQUIRE(Ends(under));
  RANK_REQUIRE(FirstChunkIsNot(c, under));
  return true;
}

/// A message of a chunk whose elements are all the same.
template <class T>
MessageBytes Constant(PieceLengths pieces, T value, ValueFormat format) {
  SparseMessageWriter writer(3, format);
  for (const std::int64_t length : pieces) {
    const std::vector<T> values(static_cast<std::size_t>(length), value);
    const std::vector<std::uint64_t> bitmap((values.size() + 63) / 64, ~std::uint64_t{0});
    writer.Add(length, bitmap.data(), length, values.data());
  }
  return writer.Finish();
}

TEST(OwnerExchange, OneRanksValueThatIsNotFiniteIsEverybodysNaN) {
  Ranks ranks(3, [](Group& c) {
    return GivesNotFinite(c, ValueFormat::kBFloat16, [&](PieceLengths pieces) {
      if (c.Rank() == 0) return Constant(pieces, kernels::BFloat16{}, ValueFormat::kBFloat16);
      SparseMessageWriter writer(3, ValueFormat::kBFloat16);
      writer.NotFinite();
      return writer.Finish();
    });
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(OwnerExchange, ASumThatOverflowsIsNaN) {
  Ranks ranks(3, [](Group& c) {
    return GivesNotFinite(c, ValueFormat::kFloat32, [](PieceLengths pieces) {
      return Constant(pieces, std::numeric_limits<float>::max(), ValueFormat::kFloat32);
    });
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(OwnerExchange, ASumThatOverflowsOnlyWhenItIsRoundedIsNaN) {
  Ranks ranks(3, [](Group& c) {
    // The largest bfloat16 and half of its last bit: the tie goes up, to infinity.
    return GivesNotFinite(c, ValueFormat::kBFloat16, [&](PieceLengths pieces) {
      const float value = c.Rank() == 0 ? 0x1.fep127f : 0x1p119f;
      return Constant(pieces, kernels::ToBFloat16(value), ValueFormat::kBFloat16);
    });
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(OwnerExchange, WithoutGatherOnlyTheOwnerKnowsOfAValueThatIsNotFinite) {
  Ranks ranks(3, [](Group& c) {
    std::vector<float> result(100, -1.0f);
    auto order = MadeBucket{3, 100}.Order(c.Rank(), c.Size(), result);
    order.gather = false;
    if (c.Rank() == 1) {
      SparseMessageWriter writer(3, ValueFormat::kFloat32);
      writer.NotFinite();
      order.messages[2] = writer.Finish();
    }
    auto exchange = std::make_shared<OwnerExchange>("exchange", c.NextLane(Purpose::kGradient),
                                                    std::move(order));
    RANK_REQUIRE(c.Launch(exchange).Wait(In(kLong)));
    RANK_REQUIRE(exchange->finite() == (c.Rank() != 2), exchange->finite(), (c.Rank() != 2));
    RANK_REQUIRE(c.Rank() != 2 || (std::isnan(result[66]) && result[67] == 0 && result[65] == -1),
                 result[65], result[66], result[67]);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

// Faults. Rank 2 of 4 does something wrong.

constexpr int kFaulty = 2, kFaultRanks = 4;

/// True if an error is of this rank and has all these words.
bool Says(const CommError& error, int peer, const std::vector<std::string>& words) {
  RANK_REQUIRE(error.operation == "exchange of gradients", error.operation);
  RANK_REQUIRE(error.peer == peer, error.peer, peer, error.cause);
  for (const std::string& word : words)
    RANK_REQUIRE(error.cause.find(word) != std::string::npos, word, error.cause);
  return true;
}

using Judge = std::function<bool(int rank, const CommError&)>;

/// Two exchanges, the first of which rank 2 spoils, and the other ranks' check of their first
/// failure. There must be one.
void ExpectFailure(const ExchangeFaultOrder& order, std::chrono::seconds deadline,
                   const Judge& judge) {
  SharedCount met;
  Ranks ranks(kFaultRanks, [&](Group& c) {
    const MadeBucket made{7, 1009};
    if (c.Rank() == kFaulty) {
      const auto faulty = std::make_shared<FaultyExchange>(c.NextLane(Purpose::kGradient),
                                                           made.Chunks(kFaultRanks), order);
      Request spoiled = c.Launch(faulty);
      UnderWay right = Launch(c, {9, 1009});
      ::pause();
    }
    std::optional<CommError> failure;
    UnderWay first = Launch(c, made);
    UnderWay second = Launch(c, {9, 1009}, true, first.exchange->LaneTag());
    for (UnderWay* under : {&first, &second}) {
      const auto done = under->request.Wait(In(deadline));
      if (!done && !failure) failure = done.error();
    }
    met.Meet(kFaultRanks - 1);
    RANK_REQUIRE(failure);
    RANK_REQUIRE(judge(c.Rank(), *failure));
    return true;
  });
  for (std::size_t rank : {0u, 1u, 3u}) EXPECT_TRUE(ranks.Good(rank));
}

class ExchangeFaults : public testing::TestWithParam<ExchangePhase> {
 protected:
  /// All others name rank 2, the message and the cause.
  void ExpectNamed(ExchangeFault fault, const std::string& cause,
                   std::chrono::seconds deadline = kLong) const {
    const std::string about =
        GetParam() == ExchangePhase::kMessage ? "its message of bucket 7" : "its sum of bucket 7";
    ExpectFailure({fault, GetParam(), {}}, deadline, [&](int, const CommError& error) {
      return Says(error, kFaulty, {about, cause});
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Phases, ExchangeFaults,
                         testing::Values(ExchangePhase::kMessage, ExchangePhase::kSum));

TEST_P(ExchangeFaults, ACorruptedMessageIsNamed) {
  ExpectNamed(ExchangeFault::kCorrupted, ": the checksum is wrong");
}
TEST_P(ExchangeFaults, ATruncatedMessageIsNamed) {
  ExpectNamed(ExchangeFault::kTruncated, " bytes after the header, which says ");
}
TEST_P(ExchangeFaults, AnEmptyMessageIsNamed) {
  ExpectNamed(ExchangeFault::kEmpty, ": 0 bytes are no message");
}
TEST_P(ExchangeFaults, AMessageThatIsTooLongIsNamed) {
  ExpectNamed(ExchangeFault::kTooLong, ": the message is longer than ");
}
TEST_P(ExchangeFaults, AnotherBucketsMessageIsNamed) {
  ExpectNamed(ExchangeFault::kOtherBucket, ": of bucket 8, expected 7");
}
TEST_P(ExchangeFaults, ASilentRankIsNamed) {
  ExpectNamed(ExchangeFault::kSilent, " has not come: missed its deadline",
              std::chrono::seconds(3));
}
TEST_P(ExchangeFaults, AMessageThatComesTwiceIsNamedInItsExchangeOrTheNext) {
  ExpectFailure({ExchangeFault::kTwice, GetParam(), {}}, kLong,
                [](int, const CommError& error) { return Says(error, kFaulty, {" came twice"}); });
}

TEST(OwnerExchange, AFaultThatOneRankSeesLeavesTheOthersWithoutItsSum) {
  ExpectFailure({ExchangeFault::kCorrupted, ExchangePhase::kMessage, 0}, std::chrono::seconds(3),
                [](int rank, const CommError& error) {
                  if (rank == 0) return Says(error, kFaulty, {"the checksum is wrong"});
                  return Says(error, 0, {"its sum of bucket 7 has not come: missed its deadline"});
                });
}

TEST(OwnerExchange, AKilledRankIsAnErrorNotAHang) {
  SharedCount ended, met;
  Ranks ranks(4, [&](Group& c) {
    const MadeBucket made{0, 100'000, 1};
    UnderWay first = Launch(c, made);
    const bool whole = Ends(first);
    ended.Meet(4);
    if (c.Rank() == 2) ::raise(SIGKILL);
    UnderWay second = Launch(c, made);
    const auto done = second.request.Wait(In(std::chrono::seconds(3)));
    met.Meet(3);
    RANK_REQUIRE(whole);
    RANK_REQUIRE(!done);
    RANK_REQUIRE(done.error().peer == 2, done.error().peer, done.error().cause);
    return true;
  });
  for (std::size_t rank : {0u, 1u, 3u}) EXPECT_TRUE(ranks.Good(rank));
  EXPECT_TRUE(WIFSIGNALED(ranks.Join(2)));
}

}  // namespace
}  // namespace adaptive_train::owner_exchange_test
