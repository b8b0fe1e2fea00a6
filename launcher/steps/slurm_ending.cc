#include "launcher/steps/slurm_ending.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <sstream>
#include <utility>

#include "core/file_io.h"
#include "launcher/steps/child_process.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kAnswerDeadline{5};
constexpr std::size_t kMostOutput = std::size_t{1} << 20;
constexpr std::size_t kMostWord = 60;
constexpr const char* kForgotten = "UNKNOWN";
/// Between the clocks of slurmctld's host and of a job's. munge allows no more.
constexpr double kMostSkew = 300;

std::string Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return Printable(text.substr(begin, text.find_last_not_of(' ') - begin + 1), kMostWord);
}

/// Slurm's local time, such as 2026-11-25T14:00:00; "N/A" and the like are none.
std::optional<double> TimeFrom(const std::string& text) {
  std::tm local{};
  local.tm_isdst = -1;
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &local) == nullptr) return std::nullopt;
  return static_cast<double>(std::mktime(&local));
}

std::int64_t NumberFrom(const std::string& text) {
  std::int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// States by which Slurm says why a job is over, in our words. Where Slurm says COMPLETED or FAILED
/// and the launcher has said nothing, the launcher was lost.
JobState StateFrom(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, JobState>, 10> kStates = {
      {{"CANCELLED", JobState::kCancelled},
       {"TIMEOUT", JobState::kTimeout},
       {"DEADLINE", JobState::kTimeout},
       {"NODE_FAIL", JobState::kNodeFail},
       {"BOOT_FAIL", JobState::kNodeFail},
       {"OUT_OF_MEMORY", JobState::kOutOfMemory},
       {"PREEMPTED", JobState::kPreempted},
       {"REQUEUED", JobState::kRequeued},
       {"COMPLETED", JobState::kLost},
       {"FAILED", JobState::kLost}}};
  for (const auto& [name, state] : kStates)
    if (word == name) return state;
  return JobState::kRunning;
}

/// While a job's nodes are being cleared squeue hides its state, and shows the reason.
std::string StateOf(const QueuedJob& queued) {
  if (queued.state != "COMPLETING") return queued.state;
  if (queued.reason == "TimeLimit") return "TIMEOUT";
  if (queued.reason == "OutOfMemory") return "OUT_OF_MEMORY";
  return queued.reason == "NodeDown" ? "NODE_FAIL" : queued.state;
}

/// Users may have made these commands filter or show otherwise.
Environment WithoutHabits() {
  Environment environment = CurrentEnvironment();
  std::erase_if(environment, [](const auto& variable) {
    return variable.first.starts_with("SQUEUE_") || variable.first.starts_with("SACCT_") ||
           variable.first == "SLURM_TIME_FORMAT";
  });
  return environment;
}

Result<Finished> Ask(std::vector<std::string> command) {
  return RunCommand({std::move(command), WithoutHabits(), ""}, kAnswerDeadline, kMostOutput);
}

/// Jobs of a cluster that was set up again are counted from 1.
bool IsAnother(const QueuedJob& queued, std::int64_t restart, double start_time) {
  return queued.restarts <= restart && queued.submit_time > start_time + 1;
}
/// squeue no longer tells of the run.
bool IsOver(const std::optional<QueuedJob>& queued, std::int64_t restart, double start_time) {
  return !queued || queued->restarts > restart || IsAnother(*queued, restart, start_time);
}

/// None: Slurm has forgotten the job.
Result<std::optional<QueuedJob>> AskQueue(std::int64_t job_id) {
  auto done = Ask({"squeue", "--noheader", "--states=all", fmt::format("--jobs={}", job_id),
                   fmt::format("--Format={}", kQueueFormat)});
  if (!done) return tl::unexpected(done.error());
  if (done->Ok()) return QueuedJobFrom(done->output, job_id);
  if (done->errors.find("Invalid job id") != std::string::npos) return std::optional<QueuedJob>();
  return Fail("squeue: " + Printable(done->errors, 200), ExitCode::kPreflight);
}

/// Empty where there is no accounting.
std::string AskAccounting(std::int64_t job_id, double start_time) {
  auto done =
      Ask({"env", "SLURM_TIME_FORMAT=%s", "sacct", "--allocations", "--noheader", "--parsable2",
           "--duplicates", fmt::format("--jobs={}", job_id), "--format=State,Start,End,NodeList"});
  return done && done->Ok() ? AccountedState(done->output, start_time) : "";
}

}  // namespace

std::optional<QueuedJob> QueuedJobFrom(std::string_view output, std::int64_t job_id) {
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    line.resize(20 + 20 + 10 + 22 + 22 + 60, ' ');
    const std::string_view text(line);
    if (Trimmed(text.substr(0, 20)) != std::to_string(job_id)) continue;
    QueuedJob job;
    job.state = Trimmed(text.substr(20, 20));
    job.restarts = NumberFrom(Trimmed(text.substr(40, 10)));
    job.submit_time = TimeFrom(Trimmed(text.substr(50, 22))).value_or(0);
    job.end_time = TimeFrom(Trimmed(text.substr(72, 22)));
    job.reason = Trimmed(text.substr(94, 60));
    if (job.restarts >= 0) return job;
  }
  return std::nullopt;
}

std::string AccountedState(std::string_view output, double start_time) {
  std::istringstream lines{std::string(output)};
  // By clocks that agree it is the last one that had begun. One that never ended, as slurmctld's
  // state was lost, would be near to every later run.
  constexpr double kClocksAgree = 1;
  std::string state;
  double nearest = kMostSkew;
  std::int64_t last_begun = -1;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream stream(line);
    for (std::string field; std::getline(stream, field, '|');) fields.push_back(field);
    if (fields.size() != 4 || fields[3] == "None assigned") continue;  // it never ran
    const auto start = NumberFrom(fields[1]);
    const auto end = NumberFrom(fields[2]);  // or "Unknown"
    if (start < 0) continue;
    const auto past_end = end < 0 ? 0 : start_time - static_cast<double>(end);
    const double away = std::max({static_cast<double>(start) - start_time, past_end, 0.0});
    const bool begun = static_cast<double>(start) <= start_time + kClocksAgree;
    if (away > kMostSkew || (begun ? start < last_begun : away > nearest)) continue;
    if (begun) last_begun = start;
    nearest = away;
    state = fields[0].substr(0, fields[0].find(' '));  // "CANCELLED by 1000"
  }
  return state;
}

SlurmEnding EndingOf(const std::optional<QueuedJob>& queued, const std::string& accounted,
                     std::int64_t restart, double start_time) {
  SlurmEnding ending;
  const bool another = queued && IsAnother(*queued, restart, start_time);
  const bool over = IsOver(queued, restart, start_time);
  ending.slurm_state = over ? accounted : StateOf(*queued);
  if (over && StateFrom(ending.slurm_state) == JobState::kRunning)
    ending.slurm_state = queued && !another ? "REQUEUED" : kForgotten;
  ending.state = ending.slurm_state == kForgotten ? JobState::kLost : StateFrom(ending.slurm_state);
  if (!over) ending.end_time = queued->end_time;
  if (ending.state == JobState::kRunning) return ending;
  ending.reason = ending.slurm_state == kForgotten
                      ? "the launcher ended without saying so, and Slurm no longer knows the job"
                      : "Slurm says " + ending.slurm_state;
  if (!over && queued->reason != "None" && !queued->reason.empty())
    ending.reason += fmt::format(" ({})", queued->reason);
  return ending;
}

Result<SlurmEnding> AskSlurm(std::int64_t job_id, std::int64_t restart, double start_time) {
  const auto queued = AskQueue(job_id);
  if (!queued) return tl::unexpected(queued.error());
  const bool over = IsOver(*queued, restart, start_time);
  return EndingOf(*queued, over ? AskAccounting(job_id, start_time) : "", restart, start_time);
}

Result<std::string> SlurmClusterName() {
  auto done = Ask({"scontrol", "show", "config"});
  if (!done) return tl::unexpected(done.error());
  std::istringstream lines(done->output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (line.starts_with("ClusterName") && equals != std::string::npos)
      return Trimmed(std::string_view(line).substr(equals + 1));
  }
  return Fail("scontrol show config: " + Printable(done->errors, 200), ExitCode::kPreflight);
}

}  // namespace adaptive_train
