#include "db/service/request_readers.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <optional>
#include <utility>

#include "db/open_database.h"
#include "db/service/answer_request.h"
#include "db/store_database.h"
#include "db/store_error.h"

namespace adaptive_train {
namespace {

/// A request that reads for longer is refused: its thread is there for others, too.
constexpr std::chrono::seconds kReadLimit{10};
/// Steps of SQLite between two looks at the clock: some tenths of a millisecond.
constexpr int kStepsPerLook = 10000;

using Clock = std::chrono::steady_clock;

int IsLate(void* until) { return Clock::now() > *static_cast<Clock::time_point*>(until) ? 1 : 0; }

}  // namespace

/// A state of the database: that of the first request which it answers, or a later one.
struct RequestReaders::Moment {
  explicit Moment(StoreDatabase& its_database) : database(its_database) {
    RunStatement(database, "BEGIN");
  }
  ~Moment() {
    try {
      RunStatement(database, "ROLLBACK");
    } catch (const SQLite::Exception&) {
      // Trouble with the disk has ended it.
    }
  }

  const Clock::time_point began = Clock::now();
  StoreDatabase& database;
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

void RequestReaders::Add(Task task) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(task), Clock::now()});
  }
  changed_.notify_one();
}

void RequestReaders::Serve(StoreDatabase& database) {
  std::optional<Moment> moment;
  Clock::time_point came;
  const Read read = [&](const Caller& caller, const StoreRequest& request) {
    // What a client was told before it asked must be seen.
    if (moment && moment->began <= came) moment.reset();
    return Answer(database, moment, caller, request);
  };
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      if (waiting_.empty()) moment.reset();  // it would keep SQLite from shortening its log
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      item = std::move(waiting_.front());
      waiting_.pop_front();
    }
    came = item.came;
    item.task(read);
  }
}

StoreAnswer RequestReaders::Answer(StoreDatabase& database, std::optional<Moment>& moment,
                                   const Caller& caller, const StoreRequest& request) const {
  Clock::time_point until = Clock::now() + kReadLimit;
  sqlite3_progress_handler(database.getHandle(), kStepsPerLook, IsLate, &until);
  try {
    if (!moment) moment.emplace(database);
    return AnswerRequest(database, caller, request, counted_);
  } catch (const SQLite::Exception& error) {
    const int code = error.getErrorCode();
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
