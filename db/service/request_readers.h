// The threads of adaptive-traind that understand requests and read its database.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "db/service/answer_request.h"
#include "db/service/caller.h"
#include "db/store_message.h"

namespace adaptive_train {

class StoreDatabase;

/// Each thread has a connection of its own, which waits for no writer. A request is answered from
/// what was committed when it came, or later. Requests that wait at the same time share one such
/// state: to begin one costs the pages that SQLite has kept.
class RequestReaders {
 public:
  /// What a task is given: a way to answer requests that only read.
  using Read = std::function<StoreAnswer(const Caller&, const StoreRequest&)>;
  using Task = std::function<void(const Read&)>;

  /// `path`: a database that is up to date. Throws SQLite::Exception.
  RequestReaders(const std::filesystem::path& path, int threads, Counted counted = Counted::kAll);
  /// Runs what waits.
  ~RequestReaders();
  RequestReaders(const RequestReaders&) = delete;
  RequestReaders& operator=(const RequestReaders&) = delete;

  /// From any thread; does not block.
  void Add(Task task);

 private:
  struct Item {
    Task task;
    std::chrono::steady_clock::time_point came;
  };
  struct Moment;

  void Serve(StoreDatabase& database);
  StoreAnswer Answer(StoreDatabase& database, std::optional<Moment>& moment, const Caller& caller,
                     const StoreRequest& request) const;

  const std::filesystem::path path_;
  const Counted counted_;
  std::vector<std::unique_ptr<StoreDatabase>> databases_;  // one for each thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace adaptive_train
