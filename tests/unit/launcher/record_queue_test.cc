// Records on a thread of their own: order, failures, writes that never end, too much that waits.
#include "launcher/run/record_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <vector>

namespace adaptive_train::record_queue_test {
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

  RecordQueue::Place Get() {
    RecordQueue::Place place;
    place.name = "the place";
    place.write = [number = held_number, written = written,
                   let = gate.get_future().share()](const NumberedEntry& entry) -> Result<void> {
      if (entry.number == number) let.wait();
      if (entry.number < 0) return Fail("refused", ExitCode::kStore);
      written->Add(entry.number);
      return {};
    };
    place.next = [next = next](const RecordQueue::Record& record) { next->Add(record->number); };
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

RecordQueue::Record Record(std::int64_t number, std::size_t bytes = 0) {
  return std::make_shared<const NumberedEntry>(
      NumberedEntry{number, PlanRecord{std::string(bytes, 'p'), 1, 0.5, ""}});
}

TEST(RecordQueue, WritesInOrderAndEndsWhenAllIsWritten) {
  TestPlace place;
  std::vector<std::int64_t> expected;
  {
    RecordQueue queue(place.Get());
    for (std::int64_t i = 1; i <= 100; ++i) {
      queue.Add(Record(i));
      expected.push_back(i);
    }
    EXPECT_TRUE(queue.Run([written = place.written]() -> Result<void> {
      return written->All().size() == 100 ? Result<void>{} : Fail("too early", ExitCode::kStore);
    }));
    queue.Add(Record(101));
    expected.push_back(101);
  }
  EXPECT_EQ(place.written->All(), expected);
  EXPECT_TRUE(place.next->All().empty());
  EXPECT_TRUE(place.why->empty());
}

TEST(RecordQueue, WhatAWriteRefusesAndAllAfterItGoOnInOrder) {
  TestPlace place(1);
  {
    RecordQueue queue(place.Get());
    for (const std::int64_t number : {1, -2, 3, 4}) queue.Add(Record(number));
    place.Let();
    EXPECT_TRUE(queue.Run([]() -> Result<void> { return {}; }));
    queue.Add(Record(5));
  }
  EXPECT_THAT(place.written->All(), ElementsAre(1));
  EXPECT_THAT(place.next->All(), ElementsAre(-2, 3, 4, 5));
  EXPECT_THAT(*place.why, ElementsAre("refused"));
}

TEST(RecordQueue, ATaskThatFailsLeavesTheQueueAndOthersStillRun) {
  TestPlace place;
  RecordQueue queue(place.Get());
  EXPECT_TRUE(queue.Run([]() -> Result<void> { return Fail("locked", ExitCode::kStore); }));
  queue.Add(Record(1));
  int runs = 0;
  EXPECT_TRUE(queue.Run([&runs]() -> Result<void> { return ++runs, Result<void>{}; }));
  queue.Finish();
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(place.next->All(), ElementsAre(1));
  EXPECT_THAT(*place.why, ElementsAre("locked"));
}

TEST(RecordQueue, AWaitThatHasItsOwnLimitEndsWithItAndLeavesNothing) {
  TestPlace place(1);
  RecordQueue queue(place.Get());
  queue.Add(Record(1));
  auto ran = std::make_shared<bool>(false);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(
      queue.Run([ran]() -> Result<void> { return *ran = true, Result<void>{}; }, milliseconds(50)));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(50));
  EXPECT_TRUE(place.why->empty());
  place.Let();
  queue.Finish();
  EXPECT_TRUE(*ran);
  EXPECT_THAT(place.written->All(), ElementsAre(1));
}

TEST(RecordQueue, WhatIsStartedRunsBeforeTheRecordsAfterIt) {
  TestPlace place;
  RecordQueue queue(place.Get());
  queue.Start(
      [written = place.written]() -> Result<void> { return written->Add(7), Result<void>{}; });
  queue.Add(Record(8));
  queue.Finish();
  EXPECT_THAT(place.written->All(), ElementsAre(7, 8));
}

TEST(RecordQueue, AWriteThatNeverEndsHoldsNobodyAndIsGivenUpAtTheEnd) {
  TestPlace place(2);
  {
    RecordQueue queue(place.Get(), {milliseconds(200), 1 << 20});
    for (std::int64_t i = 1; i <= 3; ++i) queue.Add(Record(i));
    queue.Finish();
    EXPECT_FALSE(queue.Run([]() -> Result<void> { return {}; }));
    queue.Add(Record(4));
  }
  EXPECT_THAT(place.written->All(), ElementsAre(1));
  EXPECT_THAT(place.next->All(), ElementsAre(2, 3, 4));
  EXPECT_THAT(*place.why, ElementsAre(HasSubstr("the place: no answer for 0.2 s")));
  place.Let();
}

TEST(RecordQueue, AWriteThatNeverEndsIsGivenUpWhenTheNextRecordComes) {
  TestPlace place(1);
  RecordQueue queue(place.Get(), {milliseconds(1), 1 << 20});
  for (std::int64_t i = 1; place.next->All().empty(); ++i) {
    queue.Add(Record(i));
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(place.next->All().front(), 1);
  EXPECT_EQ(place.why->size(), 1u);
  place.Let();
}

TEST(RecordQueue, MoreThanMayWaitGoesOn) {
  TestPlace place(1);
  RecordQueue queue(place.Get(), {std::chrono::seconds(60), 3 << 20});
  for (std::int64_t i = 1; i <= 4; ++i) queue.Add(Record(i, 1 << 20));
  EXPECT_THAT(place.next->All(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*place.why, ElementsAre(HasSubstr("more than 3 MiB wait")));
  place.Let();
}

TEST(RecordQueue, TheEndWaitsForSlowWritesAsLongAsTheyEnd) {
  TestPlace place;
  RecordQueue::Place slow = place.Get();
  slow.write = [write = slow.write](const NumberedEntry& entry) {
    std::this_thread::sleep_for(milliseconds(400));
    return write(entry);
  };
  {
    RecordQueue queue(std::move(slow), {std::chrono::seconds(1), 1 << 20});
    for (std::int64_t i = 1; i <= 4; ++i) queue.Add(Record(i));
  }
  EXPECT_THAT(place.written->All(), ElementsAre(1, 2, 3, 4));
}

TEST(RecordQueue, ThePlaceIsClosedBeforeTheEndAndByTheQueue) {
  struct Closed {
    std::shared_ptr<std::thread::id> by;
    ~Closed() { *by = std::this_thread::get_id(); }
  };
  const auto by = std::make_shared<std::thread::id>();
  TestPlace place;
  RecordQueue::Place closing = place.Get();
  closing.write = [closed = std::shared_ptr<Closed>(new Closed{by})](const NumberedEntry&) {
    return Result<void>{};
  };
  RecordQueue queue(std::move(closing));
  queue.Add(Record(1));
  queue.Finish();
  EXPECT_NE(*by, std::thread::id());
  EXPECT_NE(*by, std::this_thread::get_id());
}

}  // namespace
}  // namespace adaptive_train::record_queue_test
