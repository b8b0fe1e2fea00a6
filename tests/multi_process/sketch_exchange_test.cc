// The exchange of a bucket as a count sketch: integer sums without an error, and the same bits on
// all ranks and in all runs, peeled or not. Also the errors of invalid messages.
#include "runtime/exchange/sketch_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/compress/index_coding.h"
#include "tests/multi_process/exchanged_bucket.h"
#include "tests/multi_process/forked_ranks.h"
#include "tests/multi_process/shared_count.h"

namespace adaptive_train::sketch_exchange_test {
namespace {

constexpr std::chrono::seconds kLong{100};

/// What one rank selects of a made-up bucket.
SketchExchangeOrder OrderOf(const MadeBucket& made, int rank, int ranks, std::int64_t step) {
  SketchExchangeOrder order;
  order.chunks = made.Chunks(ranks);
  order.step = step;
  std::size_t place = 0;
  for (const auto& pieces : order.chunks.pieces) {
    for (const std::int64_t length : pieces) {
      for (std::int64_t i = 0; i < length; ++i, ++place) {
        if (i % 64 == 0) order.bitmap.push_back(0);
        if (!made.Selected(rank, place)) continue;
        order.bitmap.back() |= std::uint64_t{1} << i % 64;
        order.values.push_back(made.Value(rank, place));
      }
    }
  }
  return order;
}

/// What all ranks must get: the sums of whole numbers, made in 64 bits.
struct Expected {
  std::vector<float> values;
  std::size_t selected = 0;  // by some rank
  FixedPoint fixed_point;

  Expected(const MadeBucket& made, int ranks)
      : values(made.size), fixed_point(Largest(made, ranks), ranks) {
    for (std::size_t i = 0; i < made.size; ++i) {
      std::int64_t sum = 0;
      bool by_some = false;
      for (int r = 0; r < ranks; ++r) {
        if (!made.Selected(r, i)) continue;
        by_some = true;
        sum += std::llrint(static_cast<double>(made.Value(r, i)) / fixed_point.quantum());
      }
      values[i] = static_cast<float>(static_cast<double>(sum) * fixed_point.quantum());
      selected += by_some ? 1 : 0;
    }
  }
  static float Largest(const MadeBucket& made, int ranks) {
    float largest = 0;
    for (std::size_t i = 0; i < made.size; ++i) {
      for (int r = 0; r < ranks; ++r) {
        if (made.Selected(r, i)) largest = std::max(largest, std::abs(made.Value(r, i)));
      }
    }
    return largest;
  }
};

/// One bucket under way.
struct UnderWay {
  MadeBucket made;
  std::vector<float> result;
  std::shared_ptr<SketchExchange> exchange;
  Request request;
};

UnderWay Launch(Group& c, const MadeBucket& made, std::int64_t step = 0,
                const std::function<void(SketchExchangeOrder&)>& change = nullptr) {
  UnderWay under{made, std::vector<float>(made.size, -1.0f), nullptr, {}};
  auto order = OrderOf(made, c.Rank(), c.Size(), step);
  order.result = under.result;
  if (change) change(order);
  under.exchange = std::make_shared<SketchExchange>(
      "exchange of gradients", c.NextLane(Purpose::kGradient), std::move(order));
  under.request = c.Launch(under.exchange);
  return under;
}

bool Ends(UnderWay& under) {
  RANK_REQUIRE(under.request.Wait(In(kLong)));
  return true;
}

bool SameBits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Every bit of the result. All ranks and all runs are held against the same.
bool IsRight(const UnderWay& under, const Expected& expected) {
  const SketchExchange& exchange = *under.exchange;
  RANK_REQUIRE(exchange.finite());
  RANK_REQUIRE(exchange.fixed_point().quantum() == expected.fixed_point.quantum(),
               exchange.fixed_point().quantum(), expected.fixed_point.quantum());
  for (std::size_t i = 0; i < under.made.size; ++i) {
    RANK_REQUIRE(SameBits(under.result[i], expected.values[i]), i, under.made.size,
                 under.made.density, under.result[i], expected.values[i]);
  }
  return true;
}

/// A step in which the sketch of the bucket's union can be peeled, or cannot.
std::int64_t StepOf(const MadeBucket& made, int ranks, bool peels) {
  const std::size_t keys = Expected(made, ranks).selected;
  std::int64_t step = 0;
  while (CountSketch(keys, SketchSeed(made.bucket, step)).peels() != peels) ++step;
  return step;
}

class Exchange : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Exchange, testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(Exchange, ManyBucketsAtOnceOfAllSizesAndDensities) {
  std::vector<MadeBucket> buckets;
  std::vector<Expected> expected;
  for (std::size_t size : {0u, 1u, 7u, 97u, 1009u, 16381u}) {
    for (double density : {0.0, 0.01, 0.1, 0.5, 1.0}) {
      buckets.push_back({static_cast<std::uint32_t>(buckets.size()), size, density});
      expected.emplace_back(buckets.back(), GetParam());
    }
  }
  Ranks ranks(GetParam(), [&](Group& c) {
    for (int run = 0; run < 2; ++run) {
      // Whoever comes first, the sums are the same.
      ::usleep(static_cast<useconds_t>(3000 * (run == 0 ? c.Rank() : c.Size() - c.Rank())));
      std::vector<UnderWay> under;
      for (const MadeBucket& made : buckets) under.push_back(Launch(c, made, 7 * run));
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        RANK_REQUIRE(Ends(under[i]));
        RANK_REQUIRE(IsRight(under[i], expected[i]));
      }
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(Exchange, ASketchThatCannotBePeeledIsReplacedAndTheSumsAreTheSame) {
  const MadeBucket made{5, 331, 0.3};
  const Expected expected(made, GetParam());
  const std::int64_t failing = StepOf(made, GetParam(), false);
  const std::int64_t working = StepOf(made, GetParam(), true);
  Ranks ranks(GetParam(), [&](Group& c) {
    UnderWay failed = Launch(c, made, failing), well = Launch(c, made, working);
    RANK_REQUIRE(Ends(failed));
    RANK_REQUIRE(Ends(well));
    RANK_REQUIRE(failed.exchange->unfinished());
    RANK_REQUIRE(!well.exchange->unfinished());
    RANK_REQUIRE(IsRight(failed, expected));
    RANK_REQUIRE(IsRight(well, expected));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(Exchange, SendsWhatTheHeaderSays) {
  const MadeBucket made{5, 4096, 0.1};
  const auto keys = Expected(made, GetParam()).selected;
  const std::int64_t step = StepOf(made, GetParam(), true);
  Ranks ranks(GetParam(), [&](Group& c) {
    const auto all = static_cast<std::size_t>(c.Size());
    UnderWay under = Launch(c, made, step);
    RANK_REQUIRE(Ends(under));
    const auto chunks = made.Chunks(c.Size());
    std::size_t words = 0, own_words = 0;
    for (std::size_t r = 0; r < all; ++r) {
      for (const std::int64_t length : chunks.pieces[r]) {
        words += BitmapWords(length);
        if (r == static_cast<std::size_t>(c.Rank())) own_words += BitmapWords(length);
      }
    }
    const std::size_t cells = CountSketch::CellsFor(keys),
                      rank = static_cast<std::size_t>(c.Rank());
    const std::size_t own_cells = cells * (rank + 1) / all - cells * rank / all;
    // A part for each other rank, and the total for each.
    const std::size_t bytes = 4 * (all - 1) * kSketchHeaderBytes + 8 * (words - own_words) +
                              4 * (cells - own_cells) + (all - 1) * (8 * own_words + 4 * own_cells);
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kGradient) == static_cast<std::int64_t>(bytes),
                 c.communicator().BytesSent(Purpose::kGradient), static_cast<std::int64_t>(bytes));
    RANK_REQUIRE(c.communicator().BytesSent(Purpose::kParameter) == 0,
                 c.communicator().BytesSent(Purpose::kParameter));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(SketchExchange, AMillionElements) {
  std::vector<MadeBucket> buckets;
  std::vector<Expected> expected;
  for (double density : {0.01, 0.1, 1.0}) {
    buckets.push_back({static_cast<std::uint32_t>(buckets.size()), 1'000'003, density});
    expected.emplace_back(buckets.back(), 4);
  }
  Ranks ranks(4, [&](Group& c) {
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      UnderWay under = Launch(c, buckets[i]);
      RANK_REQUIRE(Ends(under));
      RANK_REQUIRE(IsRight(under, expected[i]));
      RANK_REQUIRE(!under.exchange->unfinished());
    }
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(SketchExchange, WhatIsNotSentGoesBackExactly) {
  MadeBucket made{3, 1009, 0.5};
  Ranks ranks(3, [&](Group& c) {
    UnderWay under = Launch(c, made, 1, [](SketchExchangeOrder& order) {
      for (std::size_t i = 0; i < order.values.size(); ++i)
        order.values[i] = std::ldexp(order.values[i], -static_cast<int>(i % 40));
    });
    RANK_REQUIRE(Ends(under));
    bool some_left = false;
    for (const float value : under.exchange->Order().values) {
      const float sent = under.exchange->fixed_point().Sent(value), left = value - sent;
      RANK_REQUIRE(
          static_cast<double>(sent) + static_cast<double>(left) == static_cast<double>(value),
          static_cast<double>(sent) + static_cast<double>(left), static_cast<double>(value));
      some_left |= left != 0;
    }
    RANK_REQUIRE(some_left);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_P(Exchange, GoesWithRingsAndOwnersOfTheSamePurpose) {
  Ranks ranks(GetParam(), [](Group& c) {
    std::vector<std::vector<float>> dense(8, std::vector<float>(5000, 1.0f));
    std::vector<std::vector<float>> sparse(8, std::vector<float>(1009));
    std::vector<UnderWay> buckets;
    std::vector<Request> others;
    for (std::uint32_t i = 0; i < 8; ++i) {
      others.push_back(c.AllReduce(Purpose::kGradient, dense[i]));
      buckets.push_back(Launch(c, {i, 1009, 0.3}));
      others.push_back(c.Launch(std::make_shared<OwnerExchange>(
          "exchange through owners", c.NextLane(Purpose::kGradient),
          MadeBucket{i, 1009, 0.3}.Order(c.Rank(), c.Size(), sparse[i]))));
    }
    for (UnderWay& under : buckets) {
      RANK_REQUIRE(Ends(under));
      RANK_REQUIRE(IsRight(under, Expected(under.made, c.Size())));
    }
    for (Request& other : others) {
      RANK_REQUIRE(other.Wait(In(kLong)));
    }
    RANK_REQUIRE(dense[7][4999] == static_cast<float>(c.Size()), dense[7][4999],
                 static_cast<float>(c.Size()));
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

// Values that are not finite.

/// True if all of three ranks get NaN and zeros where those from one on change their orders.
testing::AssertionResult AllGetNaN(const std::function<void(SketchExchangeOrder&)>& change,
                                   int changed_from = 1) {
  Ranks ranks(3, [&](Group& c) {
    const bool changed = c.Rank() >= changed_from;
    UnderWay under = Launch(c, {3, 100, 0.5}, 0, changed ? change : nullptr);
    RANK_REQUIRE(Ends(under));
    RANK_REQUIRE(!under.exchange->finite());
    RANK_REQUIRE(std::isnan(under.result[0]));
    return std::all_of(under.result.begin() + 1, under.result.end(),
                       [](float value) { return value == 0; });
  });
  return ranks.AllGood();
}

TEST(SketchExchange, ARankWhoseValuesAreNotFiniteIsEverybodysNaN) {
  EXPECT_TRUE(AllGetNaN([](SketchExchangeOrder& order) { order.finite = false; }));
}

TEST(SketchExchange, AValueThatIsNotFiniteIsEverybodysNaN) {
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(AllGetNaN([bad](SketchExchangeOrder& order) { order.values[3] = bad; }));
}

TEST(SketchExchange, ASumThatOverflowsIsNaN) {
  const auto change = [](SketchExchangeOrder& order) {
    order.bitmap[0] |= 1;
    std::size_t count = 0;
    for (const std::uint64_t word : order.bitmap)
      count += static_cast<std::size_t>(std::popcount(word));
    order.values.assign(count, std::numeric_limits<float>::max());
  };
  EXPECT_TRUE(AllGetNaN(change, 0));
}

// Faults. Rank 2 of 4 does something wrong. All ranks select every element, so that it knows the
// union and the number of cells.

constexpr int kFaulty = 2, kFaultRanks = 4;
constexpr MadeBucket kAllSelected{7, 1009, 1, ValueFormat::kFloat32, true};

enum class Fault {
  kCorrupted,
  kTruncated,
  kEmpty,
  kTooLong,
  kTwice,
  kOtherBucket,
  kOtherStep,
  kOtherPhase,
  kSilent,
  kPastTheEnd,
  kMissing,       // an element of the others, in the union
  kOtherLargest,  // than that of the others
  kOtherCells     // than their sum
};

/// The fault, its phase, and its victim.
struct FaultOrder {
  Fault fault = Fault::kCorrupted;
  SketchPhase phase = SketchPhase::kSelected;
  std::optional<int> victim;  // none: all
};

/// Sends all the messages of an exchange at once, correct but for the fault, without looking at
/// what arrives. Never fails; ends when everything it waits for has arrived, or when it is
/// cancelled.
class FaultySketch final : public Operation, public std::enable_shared_from_this<FaultySketch> {
 public:
  FaultySketch(const CollectiveLane& lane, const FaultOrder& fault)
      : Operation("faulty exchange"),
        lane_(lane),
        fault_(fault),
        order_(OrderOf(kAllSelected, lane.rank, lane.size, 0)) {}

  void Start() override {
    pending_ = 1;
    for (int phase = 0; phase < 4; ++phase) {
      for (int peer = 0; peer < lane_.size; ++peer) {
        if (peer != lane_.rank) Receive(static_cast<SketchPhase>(phase), peer);
      }
    }
    for (int phase = 0; phase < 4; ++phase) {
      for (int peer = 0; peer < lane_.size; ++peer) {
        if (peer != lane_.rank) Send(static_cast<SketchPhase>(phase), peer);
      }
    }
    Over();
  }
  void Cancel(const std::string&) override {
    for (const auto& part : parts_) lane_.transport->Cancel(part);
  }

 private:
  void Receive(SketchPhase phase, int peer) {
    const auto buffer = std::make_shared<std::vector<std::byte>>(1 << 16);
    ++pending_;
    parts_.push_back(lane_.transport->ReceiveUpTo(
        peer, SketchTag(lane_, phase, peer), buffer->data(), buffer->size(),
        [self = shared_from_this(), buffer](const std::string&, std::size_t) { self->Over(); }));
  }
  void Send(SketchPhase phase, int peer) {
    const bool now = fault_.victim.value_or(peer) == peer && phase == fault_.phase;
    if (now && fault_.fault == Fault::kSilent) return;
    SendOnce(phase, peer, now);
    if (now && fault_.fault == Fault::kTwice) SendOnce(phase, peer, now);
  }
  void SendOnce(SketchPhase phase, int peer, bool now) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(Made(phase, peer, now));
    ++pending_;
    parts_.push_back(lane_.transport->Send(
        peer, SketchTag(lane_, phase, lane_.rank), bytes->data(), bytes->size(),
        Sending::kWhenAsked,
        [self = shared_from_this(), bytes](const std::string&) { self->Over(); }));
  }
  std::vector<std::byte> Made(SketchPhase phase, int peer, bool now) const {
    const bool part = phase == SketchPhase::kSelected || phase == SketchPhase::kSketch;
    const std::size_t owner = static_cast<std::size_t>(part ? peer : lane_.rank);
    std::vector<std::uint64_t> bitmap;
    std::vector<std::uint32_t> cells;
    SketchMessage message{true, Expected::Largest(kAllSelected, lane_.size), {}};
    if (static_cast<int>(phase) < 2) {
      bitmap = BitmapOf(owner);
      if (now && fault_.fault == Fault::kMissing) bitmap[0] &= ~std::uint64_t{1};
      if (now && fault_.fault == Fault::kPastTheEnd) bitmap.back() |= std::uint64_t{1} << 63;
      message.payload = std::as_bytes(std::span(bitmap));
    } else {
      cells = part ? CellsOf({lane_.rank}) : CellsOf({0, 1, 2, 3});
      const std::size_t all = cells.size(), n = order_.chunks.pieces.size();
      cells = {cells.begin() + static_cast<std::ptrdiff_t>(all * owner / n),
               cells.begin() + static_cast<std::ptrdiff_t>(all * (owner + 1) / n)};
      if (now && fault_.fault == Fault::kOtherCells) ++cells[0];
      message.payload = std::as_bytes(std::span(cells));
    }
    SketchMessageKind kind{phase, kAllSelected.bucket, 0};
    if (now && fault_.fault == Fault::kOtherBucket) ++kind.bucket;
    if (now && fault_.fault == Fault::kOtherStep) ++kind.step;
    if (now && fault_.fault == Fault::kOtherPhase) kind.phase = SketchPhase::kPacked;
    if (now && fault_.fault == Fault::kOtherLargest) message.largest /= 2;
    auto bytes = WriteSketchMessage(kind, message);
    if (now && fault_.fault == Fault::kCorrupted) bytes.back() ^= std::byte{1};
    if (now && fault_.fault == Fault::kTruncated) bytes.pop_back();
    if (now && fault_.fault == Fault::kEmpty) bytes.clear();
    if (now && fault_.fault == Fault::kTooLong) bytes.resize(bytes.size() + 1);
    return bytes;
  }
  std::vector<std::uint64_t> BitmapOf(std::size_t owner) const {
    std::size_t begin = 0, words = 0;
    for (std::size_t r = 0; r <= owner; ++r) {
      begin += words;
      words = 0;
      for (const std::int64_t length : order_.chunks.pieces[r]) words += BitmapWords(length);
    }
    const auto from = order_.bitmap.begin() + static_cast<std::ptrdiff_t>(begin);
    return {from, from + static_cast<std::ptrdiff_t>(words)};
  }
  /// The sketch of the sums of some ranks' values.
  std::vector<std::uint32_t> CellsOf(const std::vector<int>& ranks) const {
    const FixedPoint fixed(Expected::Largest(kAllSelected, lane_.size), lane_.size);
    std::vector<std::int32_t> numbers(kAllSelected.size);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      for (const int rank : ranks) numbers[i] += fixed.NumberOf(kAllSelected.Value(rank, i));
    }
    return CountSketch(numbers.size(), SketchSeed(kAllSelected.bucket, 0)).Encode(numbers);
  }
  void Over() {
    if (--pending_ == 0) Complete(std::nullopt);
  }

  const CollectiveLane lane_;
  const FaultOrder fault_;
  const SketchExchangeOrder order_;
  std::vector<std::shared_ptr<Part>> parts_;
  std::size_t pending_ = 0;
};

using Judge = std::function<bool(int rank, const CommError&)>;

bool Says(const CommError& error, int peer, const std::string& words) {
  RANK_REQUIRE(error.operation == "exchange of gradients", error.operation);
  RANK_REQUIRE(error.peer == peer, error.peer, peer, error.cause);
  RANK_REQUIRE(error.cause.find(words) != std::string::npos, words, error.cause);
  return true;
}

/// An exchange that rank 2 spoils, a correct one that has the first as its earlier one, and the
/// other ranks' check of their first failure. There must be one.
void ExpectFailure(const FaultOrder& fault, std::chrono::seconds deadline, const Judge& judge) {
  SharedCount met;
  Ranks ranks(kFaultRanks, [&](Group& c) {
    if (c.Rank() == kFaulty) {
      Request spoiled =
          c.Launch(std::make_shared<FaultySketch>(c.NextLane(Purpose::kGradient), fault));
      UnderWay right = Launch(c, {9, 1009});
      ::pause();
    }
    UnderWay first = Launch(c, kAllSelected);
    auto done = first.request.Wait(In(deadline));
    UnderWay second = Launch(c, {9, 1009}, 0, [&](SketchExchangeOrder& order) {
      order.earlier_lane = first.exchange->LaneTag();
    });
    const auto done_second = second.request.Wait(In(deadline));
    if (done) done = done_second;
    met.Meet(kFaultRanks - 1);
    RANK_REQUIRE(!done);
    RANK_REQUIRE(judge(c.Rank(), done.error()));
    return true;
  });
  for (std::size_t rank : {0u, 1u, 3u}) EXPECT_TRUE(ranks.Good(rank));
}

class SketchFaults : public testing::TestWithParam<SketchPhase> {
 protected:
  /// All others name rank 2, the message and the cause.
  void ExpectNamed(Fault fault, const std::string& cause,
                   std::chrono::seconds deadline = kLong) const {
    const std::string about = std::string("its ") + NameOf(GetParam()) + " of bucket 7";
    ExpectFailure({fault, GetParam(), {}}, deadline,
                  [&](int, const CommError& error) { return Says(error, kFaulty, about + cause); });
  }
};
INSTANTIATE_TEST_SUITE_P(Phases, SketchFaults,
                         testing::Values(SketchPhase::kSelected, SketchPhase::kUnion,
                                         SketchPhase::kSketch, SketchPhase::kSketchSum));

TEST_P(SketchFaults, ACorruptedMessageIsNamed) {
  ExpectNamed(Fault::kCorrupted, ": the checksum is wrong");
}
TEST_P(SketchFaults, ATruncatedMessageIsNamed) { ExpectNamed(Fault::kTruncated, ": "); }
TEST_P(SketchFaults, AnEmptyMessageIsNamed) {
  ExpectNamed(Fault::kEmpty, ": 0 bytes are no message");
}
TEST_P(SketchFaults, AMessageThatIsTooLongIsNamed) {
  ExpectNamed(Fault::kTooLong, ": the message is longer than ");
}
TEST_P(SketchFaults, AnotherBucketsMessageIsNamed) {
  ExpectNamed(Fault::kOtherBucket, ": of bucket 8, expected 7");
}
TEST_P(SketchFaults, AnotherStepsMessageIsNamed) {
  ExpectNamed(Fault::kOtherStep, ": of step 1, expected 0");
}
TEST_P(SketchFaults, AnotherPhasesMessageIsNamed) {
  ExpectNamed(Fault::kOtherPhase, ": phase 4, expected ");
}
TEST_P(SketchFaults, ASilentRankIsNamed) {
  ExpectNamed(Fault::kSilent, " has not come: missed its deadline", std::chrono::seconds(3));
}
TEST_P(SketchFaults, AMessageThatComesTwiceIsNamedInItsExchangeOrALaterOne) {
  ExpectFailure({Fault::kTwice, GetParam(), {}}, kLong,
                [](int, const CommError& error) { return Says(error, kFaulty, " came twice"); });
}

TEST(SketchExchange, AUnionWithoutARanksElementsIsNamed) {
  ExpectFailure({Fault::kMissing, SketchPhase::kUnion, {}}, kLong, [](int, const CommError& error) {
    return Says(error, kFaulty, ": elements of this rank are missing");
  });
}

TEST(SketchExchange, ElementsPastTheEndAreNamed) {
  for (const auto phase : {SketchPhase::kSelected, SketchPhase::kUnion})
    ExpectFailure({Fault::kPastTheEnd, phase, {}}, kLong, [](int, const CommError& error) {
      return Says(error, kFaulty, ": elements past the end");
    });
}

TEST(SketchExchange, RanksThatCountInOtherQuantaAreNamed) {
  for (const auto phase : {SketchPhase::kUnion, SketchPhase::kSketch, SketchPhase::kSketchSum})
    ExpectFailure({Fault::kOtherLargest, phase, {}}, kLong, [](int, const CommError& error) {
      return Says(error, kFaulty, "its largest value is ");
    });
}

TEST(SketchExchange, CellsOfAnotherGraphAreNotBelieved) {
  // Nobody can tell whose they were.
  ExpectFailure({Fault::kOtherCells, SketchPhase::kSketchSum, {}}, kLong,
                [](int, const CommError& error) {
                  return Says(error, -1, "the sketches of bucket 7 are not of one graph");
                });
}

TEST(SketchExchange, AFaultThatOneRankSeesLeavesTheOthersWithoutItsSum) {
  ExpectFailure({Fault::kCorrupted, SketchPhase::kSketch, 0}, std::chrono::seconds(3),
                [](int rank, const CommError& error) {
                  if (rank == 0) return Says(error, kFaulty, "the checksum is wrong");
                  return Says(error, 0,
                              "its sketch sum of bucket 7 has not come: missed its deadline");
                });
}

TEST(SketchExchange, AKilledRankIsAnErrorNotAHang) {
  SharedCount ended, met;
  Ranks ranks(4, [&](Group& c) {
    const MadeBucket made{0, 100'000, 0.5};
    UnderWay first = Launch(c, made);
    const bool whole = Ends(first);
    ended.Meet(4);
    if (c.Rank() == 2) ::raise(SIGKILL);
    UnderWay second = Launch(c, made, 1);
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
}  // namespace adaptive_train::sketch_exchange_test
