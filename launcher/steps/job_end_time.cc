#include "launcher/steps/job_end_time.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kAskEvery{60};
/// An answer that takes longer will not come.
constexpr std::chrono::seconds kEndTimeDeadline{20};
/// Who calls Poll does so many times a second.
constexpr std::chrono::seconds kPause{5};

bool Runs(const std::string& shown) {
  return shown.find(" JobState=RUNNING ") != std::string::npos;
}

/// What follows " NAME=" in `shown`; empty where that is not there.
std::string FieldOf(const std::string& shown, const std::string& name) {
  const auto at = shown.find(" " + name + "=");
  if (at == std::string::npos) return "";
  const auto begin = at + name.size() + 2;
  return shown.substr(begin, shown.find_first_of(" \n", begin) - begin);
}

}  // namespace

std::optional<double> LeftOfRunningJob(const std::string& shown, const std::string& partition,
                                       double now) {
  if (!Runs(shown)) return std::nullopt;
  if (const auto end = TimeOfJob(shown, "EndTime")) return *end - now;
  const auto preempted = TimeOfJob(shown, "PreemptTime");
  const std::string text = FieldOf(partition, "GraceTime");
  double grace = 0;
  std::from_chars(text.data(), text.data() + text.size(), grace);
  return preempted && grace > 0 ? std::optional(*preempted + grace - now) : std::nullopt;
}

bool PartitionsPreempt(const std::string& shown) {
  const auto line = shown.find("\nPreemptType ");
  return line != std::string::npos &&
         shown.substr(line, shown.find('\n', line + 1) - line).ends_with(" preempt/partition_prio");
}

std::optional<double> KillWaitOf(const std::string& shown) {
  const auto line = shown.find("\nKillWait ");
  const auto value =
      line == std::string::npos ? line : shown.find_first_of("0123456789\n", line + 1);
  if (value == std::string::npos) return std::nullopt;
  double seconds = 0;
  const auto [end, error] =
      std::from_chars(shown.data() + value, shown.data() + shown.size(), seconds);
  return error == std::errc() ? std::optional(seconds) : std::nullopt;
}

ScontrolShow::ScontrolShow(const std::vector<std::string>& what, std::chrono::milliseconds patience)
    : until_(std::chrono::steady_clock::now() + patience) {
  std::vector<std::string> command = {"scontrol", "show"};
  command.insert(command.end(), what.begin(), what.end());
  auto child = ChildProcess::Start({std::move(command), std::nullopt, ""});
  if (child) child_ = std::move(*child);
}

std::optional<std::string> ScontrolShow::Poll() {
  if (!child_) return "";
  const auto status = child_->Poll();  // before reading: what came before the end is then read
  printed_ += child_->ReadOutput();
  if (!status && std::chrono::steady_clock::now() < until_) return std::nullopt;
  child_.reset();
  return status == 0 ? std::move(printed_) : "";
}

void JobEndTime::Poll() {
  if (job_id_ == 0) return;
  const auto now = Clock::now();
  const bool paused = now - std::exchange(polled_, now) > kPause;
  if (asked_) {
    const auto shown = asked_->Poll();
    if (!shown) return;
    asked_.reset();
    return Hear(*shown);
  }
  if (!paused && now - asked_at_ <= kAskEvery) return;
  asked_at_ = now;
  asked_.emplace(std::vector<std::string>{"job", "-o", std::to_string(job_id_)}, kEndTimeDeadline);
}

void JobEndTime::Hear(const std::string& shown) {
  if (shown.empty()) return;  // a controller that does not answer now has not moved the end
  const auto seconds = TimeOfJob(shown, "EndTime");
  if (seconds)
    end_ = std::chrono::system_clock::from_time_t(static_cast<std::time_t>(*seconds));
  else
    end_.reset();
}

std::optional<double> JobEndTime::Left() const {
  if (!end_) return std::nullopt;
  return std::chrono::duration<double>(*end_ - std::chrono::system_clock::now()).count();
}

KillTime::KillTime(std::int64_t job_id, std::chrono::milliseconds patience) : patience_(patience) {
  if (job_id != 0) Ask({"job", "-o", std::to_string(job_id)});
}

bool KillTime::Poll() {
  if (!asked_) return true;
  auto shown = asked_->Poll();
  if (!shown) return false;
  asked_.reset();
  Hear(std::move(*shown));
  return !asked_;
}

/// A job that ends is killed by the configuration. Where a job without a time limit is preempted, the
/// configuration says whether its partition knows when.
void KillTime::Hear(std::string shown) {
  if (job_.empty()) {
    job_ = std::move(shown);
    if (job_.empty()) return;
    const bool end_is_shown = TimeOfJob(job_, "EndTime") || !TimeOfJob(job_, "PreemptTime");
    if (Runs(job_) && end_is_shown)
      return KilledBy(LeftOfRunningJob(job_, "", Now()), Clock::now());
    return Ask({"config"});
  }
  if (!Runs(job_)) return KilledBy(KillWaitOf(shown), signalled_);
  if (PartitionsPreempt(shown)) return Ask({"partition", "-o", FieldOf(job_, "Partition")});
  KilledBy(LeftOfRunningJob(job_, shown, Now()), Clock::now());
}

double KillTime::Now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void KillTime::KilledBy(std::optional<double> left, Clock::time_point from) {
  if (!left) return;
  const std::chrono::duration<double> seconds(*left);
  killed_ = from + std::chrono::duration_cast<Clock::duration>(seconds);
}

std::optional<double> KillTime::Left() const {
  if (!killed_) return std::nullopt;
  return std::chrono::duration<double>(*killed_ - Clock::now()).count();
}

}  // namespace adaptive_train
