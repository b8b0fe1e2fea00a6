// Asks Slurm whose a job is, and where it runs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// A user's job, as Slurm knows it.
struct SeenJob {
  std::string cluster;
  uid_t user = 0;
  std::vector<std::string> nodes;
};

/// One thread, which calls squeue and scontrol. Each job is asked for once; where slurmctld does
/// not answer, a few times more.
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

  /// `user` says that the job is his. From any thread; does not block.
  void Ask(uid_t user, std::int64_t slurm_job_id);

 private:
  using Clock = std::chrono::steady_clock;
  struct Question {
    uid_t user = 0;
    std::int64_t job = 0;
    int asked = 0;
    Clock::time_point not_before{};
  };

  void Serve();
  Result<SeenJob> Answer(const Question& question);
  void Again(Question question, const Error& error);

  const Take take_;
  const Log log_;
  std::string cluster_;  // the thread's: of this slurmctld, once it is known
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> waiting_;  // by not_before
  std::set<std::pair<uid_t, std::int64_t>> asked_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace adaptive_train
