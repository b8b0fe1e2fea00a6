// The one thread of adaptive-traind that writes to its database.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "db/open_database.h"
#include "db/service/caller.h"
#include "db/service/log.h"
#include "db/service/retention.h"
#include "db/store_message.h"

namespace adaptive_train {

/// Answers requests that write. All that wait are one transaction; each is answered once that is on
/// disk. A request that is refused leaves no trace and takes none with it. Between them,
/// what is older than the retention allows is removed.
class RequestWriter {
 public:
  /// Runs on the writer's thread. Must not block.
  using Done = std::function<void(const StoreAnswer&)>;

  /// `log` is called by the writer's thread.
  RequestWriter(OpenedDatabase opened, Retention retention, Log log);
  /// Answers what waits, and writes the log back into the file.
  ~RequestWriter();
  RequestWriter(const RequestWriter&) = delete;
  RequestWriter& operator=(const RequestWriter&) = delete;

  /// From any thread; does not block.
  void Add(const Caller& caller, StoreRequest request, Done done);
  /// A change of the service's own, with what is written next. From any thread; does not block.
  void Add(std::function<void(Database&)> change, Done done);
  /// From now on. From any thread; does not block.
  void Keep(Retention retention);

 private:
  struct Item {
    Caller caller;
    StoreRequest request;
    Done done;
    std::function<void(Database&)> change = {};  // in place of the others
  };

  void Serve();
  void Purge(const Retention& retention);
  std::vector<StoreAnswer> Commit(const std::vector<Item>& batch);
  /// Logs why requests are refused, once a minute, and how many were since requests were stored.
  void Tell(const std::string& trouble, std::size_t refused);
  void TellOfTheEnd();
  StoreAnswer Write(const Item& item);
  StoreAnswer AnswerTo(const Item& item);

  const std::filesystem::path path_;
  const Log log_;
  std::unique_ptr<Database> database_;                // the thread's
  std::chrono::steady_clock::time_point purge_at_{};  // the thread's
  struct Purged {
    std::int64_t jobs = 0, figures = 0, failures = 0;
  };
  Purged purged_;                                    // the thread's; since they were logged
  std::chrono::steady_clock::time_point tell_at_{};  // the thread's
  std::int64_t refused_ = 0;                         // the thread's; since trouble began
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> waiting_;
  Retention retention_;
  bool look_ = false;  // for what is old, now
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace adaptive_train
