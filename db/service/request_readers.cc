#include "db/service/request_readers.h"

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <utility>

#include "db/open_database.h"
#include "db/service/answer_request.h"
#include "db/store_error.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

/// A request that reads for longer is refused: its thread is there for others, too.
constexpr std::chrono::seconds kReadLimit{10};
/// Steps of SQLite between two looks at the clock: some tenths of a millisecond.
constexpr int kStepsPerLook = 10000;

int IsLate(void* until) { return Clock::now() > *static_cast<Clock::time_point*>(until) ? 1 : 0; }

}  // namespace

RequestReaders::RequestReaders(const std::filesystem::path& path, int threads) : path_(path) {
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
    waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void RequestReaders::Serve(SQLite::Database& database) {
  const Read read = [&](const Caller& caller, const StoreRequest& request) {
    return Answer(database, caller, request);
  };
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task(read);
  }
}

StoreAnswer RequestReaders::Answer(SQLite::Database& database, const Caller& caller,
                                   const StoreRequest& request) const {
  Clock::time_point until = Clock::now() + kReadLimit;
  sqlite3_progress_handler(database.getHandle(), kStepsPerLook, IsLate, &until);
  try {
    SQLite::Transaction moment(database);
    return AnswerRequest(database, caller, request);
  } catch (const SQLite::Exception& error) {
    if (error.getErrorCode() == SQLITE_INTERRUPT)
      return store_answer::Refused{
          fmt::format("reading took longer than {} s: ask for less, such as jobs of a shorter time "
                      "(-S, -E)",
                      kReadLimit.count())};
    return store_answer::Refused{
        StoreError(path_, "answering a request", kBusyTimeout, error, &database).message};
  }
}

}  // namespace adaptive_train
