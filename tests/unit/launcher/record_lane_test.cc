// Records on a thread of their own: order, failures, writes that never end, too much that waits.
#include "launcher/run/record_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <vector>

namespace adaptive_train {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

/// What comes to a place, from any thread.
class Numbers {
 public:
  void Add(std::int64_t number) {
    std::lock_guard lock(mutex_);
    numbers_.push_back(number);
  }
  std::vector<std::int64_t> All() const {
    std::lock_guard lock(mutex_);
    return numbers_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::int64_t> numbers_;
};

/// A place whose write of `held` waits for Let.
struct TestPlace {
  explicit TestPlace(std::int64_t held = 0) : held_number(held) {}

  RecordLane::Place Get() {
    RecordLane::Place place;
    place.name = "the place";
    place.write = [number = held_number, written = written,
                   let = gate.get_future().share()](const NumberedEntry& entry) -> Result<void> {
      if (entry.number == number) let.wait();
      if (entry.number < 0) return Fail("refused", ExitCode::kStore);
      written->Add(entry.number);
      return {};
    };
    place.next = [next = next](const RecordLane::Record& record) { next->Add(record->number); };
    place.on_left = [why = why](const Error& error) { why->push_back(error.message); };
    return place;
  }
  void Let() { gate.set_value(); }

  const std::int64_t held_number;
  std::promise<void> gate;
  std::shared_ptr<Numbers> written = std::make_shared<Numbers>();
  std::shared_ptr<Numbers> next = std::make_shared<Numbers>();
  std::shared_ptr<std::vector<std::string>> why = std::make_shared<std::vector<std::string>>();
};

RecordLane::Record Record(std::int64_t number, std::size_t bytes = 0) {
  return std::make_shared<const NumberedEntry>(
      NumberedEntry{number, PlanRecord{std::string(bytes, 'p'), 1, 0.5, ""}});
}

TEST(RecordLane, WritesInOrderAndEndsWhenAllIsWritten) {
  TestPlace place;
  std::vector<std::int64_t> expected;
  {
    RecordLane lane(place.Get());
    for (std::int64_t i = 1; i <= 100; ++i) {
      lane.Add(Record(i));
      expected.push_back(i);
    }
    EXPECT_TRUE(lane.Run([written = place.written]() -> Result<void> {
      return written->All().size() == 100 ? Result<void>{} : Fail("too early", ExitCode::kStore);
    }));
    lane.Add(Record(101));
    expected.push_back(101);
  }
  EXPECT_EQ(place.written->All(), expected);
  EXPECT_TRUE(place.next->All().empty());
  EXPECT_TRUE(place.why->empty());
}

TEST(RecordLane, WhatAWriteRefusesAndAllAfterItGoOnInOrder) {
  TestPlace place(1);
  {
    RecordLane lane(place.Get());
    for (const std::int64_t number : {1, -2, 3, 4}) lane.Add(Record(number));
    place.Let();
    EXPECT_TRUE(lane.Run([]() -> Result<void> { return {}; }));
    lane.Add(Record(5));
  }
  EXPECT_THAT(place.written->All(), ElementsAre(1));
  EXPECT_THAT(place.next->All(), ElementsAre(-2, 3, 4, 5));
  EXPECT_THAT(*place.why, ElementsAre("refused"));
}

TEST(RecordLane, ATaskThatFailsLeavesTheLaneAndOthersStillRun) {
  TestPlace place;
  RecordLane lane(place.Get());
  EXPECT_TRUE(lane.Run([]() -> Result<void> { return Fail("locked", ExitCode::kStore); }));
  lane.Add(Record(1));
  int runs = 0;
  EXPECT_TRUE(lane.Run([&runs]() -> Result<void> { return ++runs, Result<void>{}; }));
  lane.Finish();
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(place.next->All(), ElementsAre(1));
  EXPECT_THAT(*place.why, ElementsAre("locked"));
}

TEST(RecordLane, AWriteThatNeverEndsHoldsNobodyAndIsGivenUpAtTheEnd) {
  TestPlace place(2);
  {
    RecordLane lane(place.Get(), {milliseconds(200), 1 << 20});
    for (std::int64_t i = 1; i <= 3; ++i) lane.Add(Record(i));
    lane.Finish();
    EXPECT_FALSE(lane.Run([]() -> Result<void> { return {}; }));
    lane.Add(Record(4));
  }
  EXPECT_THAT(place.written->All(), ElementsAre(1));
  EXPECT_THAT(place.next->All(), ElementsAre(2, 3, 4));
  EXPECT_THAT(*place.why, ElementsAre(HasSubstr("the place: no answer for 0.2 s")));
  place.Let();
}

TEST(RecordLane, AWriteThatNeverEndsIsGivenUpWhenTheNextRecordComes) {
  TestPlace place(1);
  RecordLane lane(place.Get(), {milliseconds(1), 1 << 20});
  for (std::int64_t i = 1; place.next->All().empty(); ++i) {
    lane.Add(Record(i));
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(place.next->All().front(), 1);
  EXPECT_EQ(place.why->size(), 1u);
  place.Let();
}

TEST(RecordLane, MoreThanMayWaitGoesOn) {
  TestPlace place(1);
  RecordLane lane(place.Get(), {std::chrono::seconds(60), 3 << 20});
  for (std::int64_t i = 1; i <= 4; ++i) lane.Add(Record(i, 1 << 20));
  EXPECT_THAT(place.next->All(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*place.why, ElementsAre(HasSubstr("more than 3 MiB wait")));
  place.Let();
}

TEST(RecordLane, TheEndWaitsForSlowWritesAsLongAsTheyEnd) {
  TestPlace place;
  RecordLane::Place slow = place.Get();
  slow.write = [write = slow.write](const NumberedEntry& entry) {
    std::this_thread::sleep_for(milliseconds(400));
    return write(entry);
  };
  {
    RecordLane lane(std::move(slow), {std::chrono::seconds(1), 1 << 20});
    for (std::int64_t i = 1; i <= 4; ++i) lane.Add(Record(i));
  }
  EXPECT_THAT(place.written->All(), ElementsAre(1, 2, 3, 4));
}

TEST(RecordLane, ThePlaceIsClosedBeforeTheEndAndByTheLane) {
  struct Closed {
    std::shared_ptr<std::thread::id> by;
    ~Closed() { *by = std::this_thread::get_id(); }
  };
  const auto by = std::make_shared<std::thread::id>();
  TestPlace place;
  RecordLane::Place closing = place.Get();
  closing.write = [closed = std::shared_ptr<Closed>(new Closed{by})](const NumberedEntry&) {
    return Result<void>{};
  };
  RecordLane lane(std::move(closing));
  lane.Add(Record(1));
  lane.Finish();
  EXPECT_NE(*by, std::thread::id());
  EXPECT_NE(*by, std::this_thread::get_id());
}

}  // namespace
}  // namespace adaptive_train
