// Asks Slurm whose a job is, where it runs, and which nodes went down.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/result.h"
#include "db/presence.h"
#include "db/service/log.h"
#include "db/service/slurm_questions.h"
#include "db/store_message.h"

namespace adaptive_train {

/// A user's job, as Slurm knows it.
struct SeenJob {
  std::string cluster;
  uid_t user = 0;
  JobQuestion job;
  struct Charged {
    std::string account;  // empty: none
    EpochSeconds since = 0;
  };
  std::optional<Charged> charged;  // none: Slurm tells of an earlier job with this number only
  struct Stay {
    std::vector<std::string> nodes;
    PresenceTime time;
  };
  std::vector<Stay> stays;  // one for each of its runs that Slurm tells of; empty: told before
};
/// A node that went down at `time`, by Slurm's word, where a job of `user` had `failed`.
struct SeenOutage {
  std::string cluster;
  uid_t user = 0;
  std::string node;
  EpochSeconds failed = 0, time = 0;
};

/// One thread, which calls squeue, sacct and scontrol. Users take turns. Of a job it asks until
/// Slurm has said where it runs, five times at most, 30 s apart, and of one that runs again every
/// few hours until it has ended. What Slurm has said is told again when the user names the job
/// again, as another run in it does. Of a node it asks until Slurm knows of an outage, for an hour,
/// less and less often. SLURM_TIME_FORMAT must be "%s" in this process: times in seconds since
/// 1970.
class SlurmAsker {
 public:
  /// Takes what Slurm says of a job whose user has named it, or of a node. From any thread; must
  /// not block.
  using Take = std::function<void(const std::variant<SeenJob, SeenOutage>&)>;

  SlurmAsker(Take take, Log log);
  /// Leaves what waits.
  ~SlurmAsker();
  SlurmAsker(const SlurmAsker&) = delete;
  SlurmAsker& operator=(const SlurmAsker&) = delete;

  /// About what `user` says of his jobs and of their nodes. From any thread; does not block. Of one
  /// user's questions a few of each kind may wait, and more are not asked.
  void Ask(uid_t user, const std::vector<SlurmQuestion>& questions);

 private:
  using Clock = std::chrono::steady_clock;
  struct Question {
    uid_t user = 0;
    SlurmQuestion about;
    int asked = 0;
    Clock::time_point not_before{};
    bool follows = false;  // Slurm has said where the job runs
  };

  void Serve();
  std::optional<Question> NextQuestion();
  void Ask(uid_t user, const SlurmQuestion& about);
  bool HasRoom(const std::deque<Question>& questions, const SlurmQuestion& about) const;
  /// What follows from an answer.
  enum class Next { kNothing, kFollow };
  void Ended(const Question& question, const Result<Next>& answered);
  void Follow(Question question);
  Result<Next> Answer(const Question& question);
  /// None: it is another's.
  Result<std::optional<SeenJob>> Seen(uid_t user, const JobQuestion& job) const;
  Result<SeenOutage> Seen(uid_t user, const NodeQuestion& node) const;
  void Tell(const Question& question, const std::optional<SeenJob>& job);

  const Take take_;
  const Log log_;
  std::string cluster_;  // the thread's: of this slurmctld, once it is known
  bool told_ = false;    // the thread's: that Slurm does not answer
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uid_t, std::deque<Question>> waiting_;
  uid_t last_ = 0;  // whose turn it was
  /// A question that waits or is answered, and until when its answer is told again.
  struct Known {
    std::optional<SeenJob> seen;
    Clock::time_point until;
  };
  std::map<std::pair<uid_t, SlurmQuestion>, Known> known_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace adaptive_train
