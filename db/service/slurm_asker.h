// Asks Slurm whose a job is, and where it runs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// A user's job, as Slurm knows it.
struct SeenJob {
  std::string cluster;
  uid_t user = 0;
  std::vector<std::string> nodes;
};

/// One thread, which calls squeue and scontrol. Users take turns. A job is asked for until Slurm
/// has said where it runs, five times at most, 30 s apart.
class SlurmAsker {
 public:
  /// Takes what Slurm says of a job whose user has named it. By the asker's thread.
  using Take = std::function<void(const SeenJob&)>;
  using Log = std::function<void(const std::string&)>;

  SlurmAsker(Take take, Log log);
  /// Leaves what waits.
  ~SlurmAsker();
  SlurmAsker(const SlurmAsker&) = delete;
  SlurmAsker& operator=(const SlurmAsker&) = delete;

  /// `user` says that the job is his; a requeued one is another. From any thread; does not block.
  /// Of one user's questions a few may wait, and more are not asked.
  void Ask(uid_t user, std::int64_t slurm_job_id, std::int64_t restart_count);

 private:
  using Clock = std::chrono::steady_clock;
  using Job = std::pair<std::int64_t, std::int64_t>;  // and its restarts
  struct Question {
    uid_t user = 0;
    Job job;
    int asked = 0;
    Clock::time_point not_before{};
  };

  void Serve();
  std::optional<Question> Next();
  void Ended(const Question& question, const Result<SeenJob>& seen);
  Result<SeenJob> Answer(const Question& question);

  const Take take_;
  const Log log_;
  std::string cluster_;  // the thread's: of this slurmctld, once it is known
  bool told_ = false;    // the thread's: that Slurm does not answer
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uid_t, std::deque<Question>> waiting_;
  uid_t last_ = 0;                         // whose turn it was
  std::set<std::pair<uid_t, Job>> known_;  // waiting, or answered
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace adaptive_train
