// Carries a run's records to where they are kept, away from the thread that listens to the ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/result.h"
#include "db/ledger_entry.h"

namespace adaptive_train {

/// Writes records in their order on a thread of its own. The queue is left for good if a write fails
/// or does not end in time, or if too much waits: then the records that are not known to be written
/// go on to another place, and so do all later ones.
///
/// Threads: Add and Start from any; the others from one thread.
class RecordQueue {
 public:
  using Record = std::shared_ptr<const NumberedEntry>;
  using Write = std::function<Result<void>(const NumberedEntry&)>;

  /// Where the records go. A write that never ends keeps its thread, which outlives the queue: the
  /// functions own all that they use.
  struct Place {
    std::string name;  // for errors: "profile store /home/ann/profiles.db"
    /// Runs on the queue's thread, which also destroys it.
    Write write;
    /// Gets, once left, each record in turn, the one at hand too: it may be written all the same.
    /// Must not block.
    std::function<void(Record)> next;
    /// Hears once why the queue is left.
    std::function<void(const Error& why)> on_left;
  };
  struct Limits {
    std::chrono::milliseconds patience{10'000};      // for one write
    std::size_t most_bytes = std::size_t{64} << 20;  // of the records that wait
  };

  explicit RecordQueue(Place place, const Limits& limits);
  explicit RecordQueue(Place place) : RecordQueue(std::move(place), Limits{}) {}
  /// Finishes.
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  /// Never blocks.
  void Add(Record record);
  using Task = std::function<Result<void>()>;
  /// Runs `task` on the queue's thread, after the records that were added. Its error leaves the
  /// queue. Never blocks: `task` owns all that it uses.
  void Start(Task task);
  /// The same, and returns when it is done, or false if the queue stands still for the patience, or
  /// after `most` has passed, which alone leaves nothing. `task` may then run later.
  bool Run(Task task, std::optional<std::chrono::milliseconds> most = std::nullopt);
  /// Waits until all is written and the place is closed, while each write ends in time.
  void Finish();

 private:
  struct Shared;

  static void Serve(const std::shared_ptr<Shared>& shared, Write write);
  /// Waits for `done` as long as nothing takes longer than the patience, and no longer than `most`;
  /// false: in vain.
  bool Await(bool (*done)(const Shared&), std::optional<std::chrono::milliseconds> most = {});

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace adaptive_train
