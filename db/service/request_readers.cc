#include "db/service/request_readers.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "db/database.h"
#include "db/open_database.h"
#include "db/service/answer_request.h"
#include "db/store_error.h"

namespace adaptive_train {
namespace {

/// A request that reads for longer is refused: its thread is there for others, too.
constexpr std::chrono::seconds kReadLimit{10};
/// Steps of SQLite between two looks at the clock: some tenths of a millisecond.
constexpr int kStepsPerLook = 10000;

using Clock = std::chrono::steady_clock;

/// Interrupts what reads for too long, or beyond the end.
class ReadLimit {
 public:
  ReadLimit(Database& database, const std::atomic<bool>& ending)
      : handle_(database.handle()), ending_(ending) {
    sqlite3_progress_handler(handle_, kStepsPerLook, IsOver, this);
  }
  ~ReadLimit() { sqlite3_progress_handler(handle_, 0, nullptr, nullptr); }
  ReadLimit(const ReadLimit&) = delete;

 private:
  static int IsOver(void* limit) {
    const auto& self = *static_cast<const ReadLimit*>(limit);
    return self.ending_ || Clock::now() > self.until_ ? 1 : 0;
  }

  sqlite3* handle_;
  const std::atomic<bool>& ending_;
  const Clock::time_point until_ = Clock::now() + kReadLimit;
};

}  // namespace

/// A state of the database: that of the first request which it answers, or a later one.
struct RequestReaders::Moment {
  explicit Moment(Database& its_database) : database(its_database) {
    Statement(database, "BEGIN").Run();
  }
  ~Moment() {
    try {
      Statement(database, "ROLLBACK").Run();
    } catch (const DatabaseError&) {
      // Trouble with the disk has ended it.
    }
  }

  const Clock::time_point began = Clock::now();
  Database& database;
};

RequestReaders::RequestReaders(const std::filesystem::path& path, int threads, Counted counted)
    : path_(path), counted_(counted) {
  for (int i = 0; i < threads; ++i) databases_.push_back(OpenReader(path));
  for (const auto& database : databases_)
    threads_.emplace_back([this, own = database.get()] { Serve(*own); });
}

RequestReaders::~RequestReaders() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RequestReaders::Add(uid_t user, Task task) {
  {
    std::lock_guard lock(mutex_);
    std::deque<Item>& items = users_[user].items;
    if (items.empty()) turns_.push_back(user);
    items.push_back({user, std::move(task), Clock::now()});
  }
  changed_.notify_one();
}

/// The first request of the next user who may have one more thread. Under the lock.
std::optional<RequestReaders::Item> RequestReaders::Next() {
  const std::size_t most = std::max<std::size_t>(1, databases_.size() - 1);
  const auto turn =
      std::ranges::find_if(turns_, [&](uid_t user) { return users_[user].running < most; });
  if (turn == turns_.end()) return std::nullopt;
  const uid_t user = *turn;
  turns_.erase(turn);
  Waiting& waiting = users_[user];
  Item item = std::move(waiting.items.front());
  waiting.items.pop_front();
  ++waiting.running;
  if (!waiting.items.empty()) turns_.push_back(user);
  return item;
}

void RequestReaders::Ended(uid_t user) {
  {
    std::lock_guard lock(mutex_);
    const auto waiting = users_.find(user);
    --waiting->second.running;
    if (waiting->second.running == 0 && waiting->second.items.empty()) users_.erase(waiting);
  }
  changed_.notify_one();  // what waited for this user's share
}

void RequestReaders::Serve(Database& database) {
  std::optional<Moment> moment;
  const Read read = [&](const Caller& caller, const StoreRequest& request) {
    return Answer(database, moment, caller, request);
  };
  for (;;) {
    std::optional<Item> item;
    {
      std::unique_lock lock(mutex_);
      item = Next();
      if (!item) moment.reset();  // it would keep SQLite from shortening its log
      while (!item && !(ending_ && turns_.empty())) {
        changed_.wait(lock);
        item = Next();
      }
      if (!item) break;
    }
    // What a client was told before it asked must be seen.
    if (moment && moment->began <= item->came) moment.reset();
    item->task(read);
    Ended(item->user);
  }
  changed_.notify_all();  // others may wait for what is not to come
}

StoreAnswer RequestReaders::Answer(Database& database, std::optional<Moment>& moment,
                                   const Caller& caller, const StoreRequest& request) const {
  const ReadLimit limit(database, ending_);
  try {
    if (!moment) moment.emplace(database);
    return AnswerRequest(database, caller, request, counted_);
  } catch (const DatabaseError& error) {
    const int code = error.code();
    const std::string why =
        StoreError(path_, "answering a request", kBusyTimeout, error, &database).message;
    moment.reset();
    if (code != SQLITE_INTERRUPT) return store_answer::Refused{why};
    return store_answer::Refused{
        fmt::format("reading took longer than {} s: ask for less, such as jobs of a shorter time "
                    "(-S, -E)",
                    kReadLimit.count())};
  }
}

}  // namespace adaptive_train
