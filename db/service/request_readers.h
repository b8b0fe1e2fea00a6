// The threads of adaptive-traind that understand requests and read its database.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "db/service/answer_request.h"
#include "db/service/caller.h"
#include "db/store_message.h"

namespace adaptive_train {

class Database;

/// Each thread has a connection of its own, which waits for no writer. Users take turns, and none
/// of them has all threads: long requests of one hold up no other. A request is answered from what
/// was committed when it came, or later. Requests that wait at the same time share one such state:
/// to begin one costs the pages that SQLite has kept.
class RequestReaders {
 public:
  /// What a task is given: a way to answer requests that only read.
  using Read = std::function<StoreAnswer(const Caller&, const StoreRequest&)>;
  using Task = std::function<void(const Read&)>;

  /// `path`: a database that is up to date. Throws DatabaseError.
  RequestReaders(const std::filesystem::path& path, int threads, Counted counted = Counted::kAll);
  /// Runs what waits; what reads is interrupted, as nobody waits for it any more.
  ~RequestReaders();
  RequestReaders(const RequestReaders&) = delete;
  RequestReaders& operator=(const RequestReaders&) = delete;

  /// From any thread; does not block.
  void Add(uid_t user, Task task);

 private:
  struct Item {
    uid_t user = 0;
    Task task;
    std::chrono::steady_clock::time_point came;
  };
  struct Waiting {
    std::deque<Item> items;
    std::size_t running = 0;
  };
  struct Moment;

  void Serve(Database& database);
  std::optional<Item> Next();
  void Ended(uid_t user);
  StoreAnswer Answer(Database& database, std::optional<Moment>& moment, const Caller& caller,
                     const StoreRequest& request) const;

  const std::filesystem::path path_;
  const Counted counted_;
  std::vector<std::unique_ptr<Database>> databases_;  // one for each thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uid_t, Waiting> users_;  // whose requests wait or are answered
  std::deque<uid_t> turns_;         // of users whose requests wait
  std::atomic<bool> ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace adaptive_train
