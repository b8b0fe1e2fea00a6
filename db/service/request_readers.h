// The threads of adaptive-traind that understand requests and read its database.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "db/service/caller.h"
#include "db/store_message.h"

namespace SQLite {
class Database;
}

namespace adaptive_train {

/// Each thread has a connection of its own, which sees what was last committed and waits for no
/// writer.
class RequestReaders {
 public:
  /// What a task is given: a way to answer requests that only read.
  using Read = std::function<StoreAnswer(const Caller&, const StoreRequest&)>;
  using Task = std::function<void(const Read&)>;

  /// `path`: a database that is up to date. Throws SQLite::Exception.
  RequestReaders(const std::filesystem::path& path, int threads);
  /// Runs what waits.
  ~RequestReaders();
  RequestReaders(const RequestReaders&) = delete;
  RequestReaders& operator=(const RequestReaders&) = delete;

  /// From any thread; does not block.
  void Add(Task task);

 private:
  void Serve(SQLite::Database& database);
  StoreAnswer Answer(SQLite::Database& database, const Caller& caller,
                     const StoreRequest& request) const;

  const std::filesystem::path path_;
  std::vector<std::unique_ptr<SQLite::Database>> databases_;  // one for each thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace adaptive_train
