#include "launcher/run/record_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

/// The texts and figures of a record, about which its other members are small.
std::size_t BytesOf(const LedgerEntry& entry) {
  std::size_t bytes = sizeof(NumberedEntry);
  if (const auto* nodes = std::get_if<std::vector<NodeRecord>>(&entry)) {
    for (const NodeRecord& node : *nodes) bytes += sizeof node + node.snapshot.size();
  } else if (const auto* plan = std::get_if<PlanRecord>(&entry)) {
    bytes += plan->plan.size() + plan->why.size();
  } else if (const auto* measured = std::get_if<MeasuredRecord>(&entry)) {
    const Profile& profile = measured->profile;
    bytes += profile.links.size() * sizeof(LinkMeasurement) +
             profile.devices.size() * sizeof(DeviceMeasurement) +
             profile.layers.size() * sizeof(LayerMeasurement);
  }
  return bytes;
}

}  // namespace

/// What the queue and its thread share; all but the constants is guarded by `mutex`.
struct RecordQueue::Shared {
  using Clock = std::chrono::steady_clock;
  struct Item {
    Record record;  // or a task
    Task task;
  };

  Shared(Place to, const Limits& within) : place(std::move(to)), limits(within) {}

  bool Idle() const { return waiting.empty() && !begun; }
  bool Stuck() const { return begun && Clock::now() >= *begun + limits.patience; }
  Error StuckError() const {
    return {fmt::format("{}: no answer for {:.3g} s", place.name,
                        std::chrono::duration<double>(limits.patience).count()),
            ExitCode::kStore};
  }
  Error FullError() const {
    return {
        fmt::format("{}: more than {} MiB wait to be written", place.name, limits.most_bytes >> 20),
        ExitCode::kStore};
  }

  /// Hands on what is not known to be written. True if the queue was not left before.
  bool HandOn() {
    if (at_hand && at_hand->record) place.next(std::move(at_hand->record));
    for (Item& item : waiting)
      if (item.record) place.next(std::move(item.record));
    std::erase_if(waiting, [](const Item& item) { return !item.task; });
    bytes = 0;
    return !std::exchange(left, true);
  }

  /// The thread may be in a write that never ends.
  bool GiveUp() {
    const bool first = HandOn();
    given_up = true;
    waiting.clear();
    changed.notify_all();
    return first;
  }

  const Place place;  // without `write`
  const Limits limits;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> waiting;
  std::optional<Item> at_hand;             // its record is gone once handed on
  std::optional<Clock::time_point> begun;  // of what the thread does now; none: nothing
  std::size_t bytes = 0;                   // of the records here
  bool left = false;                       // records go on
  bool given_up = false;                   // the thread ends, if it can
  bool ending = false;
  bool ended = false;  // all is written, and the place closed
};

RecordQueue::RecordQueue(Place place, const Limits& limits) {
  auto write = std::exchange(place.write, nullptr);
  shared_ = std::make_shared<Shared>(std::move(place), limits);
  thread_ = std::thread(
      [shared = shared_, write = std::move(write)]() mutable { Serve(shared, std::move(write)); });
}

RecordQueue::~RecordQueue() {
  Finish();
  std::unique_lock lock(shared_->mutex);
  const bool ended = shared_->ended;
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void RecordQueue::Serve(const std::shared_ptr<Shared>& shared, Write write) {
  LeaveSignalsToOthers();
  Shared& s = *shared;
  std::unique_lock lock(s.mutex);
  for (;;) {
    s.changed.wait(lock, [&] { return s.ending || s.given_up || !s.waiting.empty(); });
    s.begun = Shared::Clock::now();
    if (s.waiting.empty()) break;
    s.at_hand = std::move(s.waiting.front());
    s.waiting.pop_front();
    const Shared::Item item = *s.at_hand;
    lock.unlock();
    const Result<void> done = item.task ? item.task() : write(*item.record);
    lock.lock();
    if (s.given_up) return;
    const bool first = !done && s.HandOn();
    if (s.at_hand->record) s.bytes -= BytesOf(s.at_hand->record->entry);
    s.at_hand.reset();
    s.begun.reset();
    s.changed.notify_all();
    if (!first) continue;
    lock.unlock();
    s.place.on_left(done.error());
    lock.lock();
  }
  lock.unlock();
  write = nullptr;
  lock.lock();
  s.ended = !s.given_up;
  s.changed.notify_all();
}

void RecordQueue::Add(Record record) {
  std::optional<Error> why;
  {
    std::lock_guard lock(shared_->mutex);
    if (!shared_->left) {
      const std::size_t bytes = BytesOf(record->entry);
      if (shared_->Stuck()) {
        why = shared_->StuckError();
      } else if (shared_->bytes + bytes > shared_->limits.most_bytes) {
        why = shared_->FullError();
      } else {
        shared_->bytes += bytes;
        shared_->waiting.push_back({std::move(record), nullptr});
        shared_->changed.notify_all();
        return;
      }
      shared_->GiveUp();
    }
    shared_->place.next(std::move(record));
  }
  if (why) shared_->place.on_left(*why);
}

void RecordQueue::Start(Task task) {
  std::lock_guard lock(shared_->mutex);
  if (shared_->given_up) return;
  shared_->waiting.push_back({nullptr, std::move(task)});
  shared_->changed.notify_all();
}

bool RecordQueue::Run(Task task, std::optional<std::chrono::milliseconds> most) {
  Start(std::move(task));
  return Await([](const Shared& shared) { return shared.Idle(); }, most);
}

void RecordQueue::Finish() {
  {
    std::lock_guard lock(shared_->mutex);
    shared_->ending = true;
    shared_->changed.notify_all();
  }
  Await([](const Shared& shared) { return shared.ended; });
}

bool RecordQueue::Await(bool (*done)(const Shared&),
                        std::optional<std::chrono::milliseconds> most) {
  const auto begun = Shared::Clock::now();
  bool first = false;
  {
    std::unique_lock lock(shared_->mutex);
    while (!shared_->given_up && !done(*shared_)) {
      const auto stuck = shared_->begun.value_or(Shared::Clock::now()) + shared_->limits.patience;
      shared_->changed.wait_until(lock, most ? std::min(stuck, begun + *most) : stuck);
      if (done(*shared_)) break;
      if (shared_->Stuck()) {
        first = shared_->GiveUp();
      } else if (most && Shared::Clock::now() >= begun + *most) {
        return false;
      }
    }
    if (!first) return !shared_->given_up;
  }
  shared_->place.on_left(shared_->StuckError());
  return false;
}

}  // namespace adaptive_train
