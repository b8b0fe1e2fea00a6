#include "launcher/run/job_endings.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <string>

#include "launcher/steps/slurm_ending.h"

namespace adaptive_train {
namespace {

/// Rows that a command asks Slurm about; the others wait for the next one.
constexpr int kMostAsked = 20;
/// A run without Slurm that has written nothing for so long is taken for lost.
constexpr double kLongSilence = 86400;

/// The last time at which the run has shown that it lives: it writes a line each step.
double LastSign(const JobRow& row) {
  double last = row.job.start_time;
  for (const char* file : {"/metrics.jsonl", "/ledger.jsonl"}) {
    struct stat info {};
    if (::stat((row.job.run_dir + file).c_str(), &info) == 0)
      last = std::max(last, static_cast<double>(info.st_mtime));
  }
  return last;
}

/// Asks the Slurm of this host, once it is known to be the one of a row's cluster.
class SlurmQuestions {
 public:
  /// None: this Slurm cannot be asked about the row, or does not answer.
  std::optional<SlurmEnding> Ask(const JobRow& row) {
    const JobRecord& job = row.job;
    if (job.slurm_job_id == 0 || silent_ || asked_ >= kMostAsked) return std::nullopt;
    if (!cluster_) {
      const auto name = SlurmClusterName();
      silent_ = !name;
      if (silent_) return std::nullopt;
      cluster_ = *name;
    }
    if (job.cluster != *cluster_) return std::nullopt;
    ++asked_;
    auto ending = AskSlurm(job.slurm_job_id, job.restart_count, job.start_time);
    silent_ = !ending;
    return ending ? std::optional(std::move(*ending)) : std::nullopt;
  }

 private:
  std::optional<std::string> cluster_;
  int asked_ = 0;
  bool silent_ = false;  // no answer: it is not asked again
};

bool SaidToRun(const JobRow& row) { return row.state == JobState::kRunning; }
/// A signal ended it, which Slurm sends for several reasons.
bool EndedBySignal(const JobRow& row) {
  return row.state == JobState::kCancelled && row.job.slurm_job_id > 0;
}

/// Of a row that Slurm has said something about.
void Store(ProfileStore& store, JobRow& row, const SlurmEnding& ending) {
  const bool is_lost = ending.state == JobState::kLost;
  FoundEnd found;
  // A launcher that has ended in order says more than a Slurm that has no reason for it.
  found.state = EndedBySignal(row) && is_lost ? row.state : ending.state;
  found.reason = row.reason;
  if (found.state != row.state) found.reason += (row.reason.empty() ? "" : "; ") + ending.reason;
  found.end_time = ending.end_time.value_or(LastSign(row));
  found.slurm_state = ending.slurm_state;
  (void)store.FoundOut(row.id, row.state, found);
  row.state = found.state;
  row.slurm_state = found.slurm_state;
  if (!row.end_time) row.end_time = found.end_time;
  row.reason = found.reason;
}

}  // namespace

void FindOutEndings(ProfileStore& store, std::vector<JobRow>& rows, double now) {
  SlurmQuestions slurm;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (!row->slurm_state.empty() || (!SaidToRun(*row) && !EndedBySignal(*row))) continue;
    const LauncherProcess& launcher = *row->job.launcher;
    if (SaidToRun(*row) && IsAlive(launcher)) continue;
    const auto ending = slurm.Ask(*row);
    if (ending && ending->state != JobState::kRunning) {
      Store(store, *row, *ending);
    } else if (SaidToRun(*row) &&
               (IsGone(launcher) || (!ending && now - LastSign(*row) > kLongSilence))) {
      row->state = JobState::kLost;
    }
  }
}

}  // namespace adaptive_train
