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

/// What scontrol prints; empty where it does not answer.
std::string Shown(std::vector<std::string> what, std::chrono::milliseconds patience) {
  what.insert(what.begin(), {"scontrol", "show"});
  const auto done = RunCommand({std::move(what), std::nullopt, ""}, patience);
  return done && done->Ok() ? done->output : "";
}

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
  auto end = TimeOfJob(shown, "EndTime");
  const auto preempted = TimeOfJob(shown, "PreemptTime");
  const std::string text = FieldOf(partition, "GraceTime");
  double grace = 0;  // of a QOS, which scontrol does not show
  std::from_chars(text.data(), text.data() + text.size(), grace);
  if (preempted && grace > 0) end = std::min(end.value_or(*preempted + grace), *preempted + grace);
  return end ? std::optional(*end - now) : std::nullopt;
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

std::optional<double> JobEndTime::LeftNow(std::chrono::milliseconds patience) const {
  if (job_id_ == 0) return std::nullopt;
  const std::string shown = Shown({"job", "-o", std::to_string(job_id_)}, patience);
  if (shown.empty()) return std::nullopt;
  if (!Runs(shown)) return KillWaitOf(Shown({"config"}, patience));
  std::string partition;
  if (TimeOfJob(shown, "PreemptTime"))
    partition = Shown({"partition", "-o", FieldOf(shown, "Partition")}, patience);
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return LeftOfRunningJob(shown, partition, now.count());
}

void JobEndTime::Poll() {
  if (job_id_ == 0) return;
  const auto now = Clock::now();
  const bool paused = now - std::exchange(polled_, now) > kPause;
  if (asked_) return Hear(now);
  if (paused || now - asked_at_ > kAskEvery) Ask(now);
}

void JobEndTime::Ask(Clock::time_point now) {
  asked_at_ = now;
  answer_.clear();
  auto asked = ChildProcess::Start(
      {{"scontrol", "show", "job", "-o", std::to_string(job_id_)}, std::nullopt, ""});
  if (asked) asked_ = std::move(*asked);
}

void JobEndTime::Hear(Clock::time_point now) {
  const auto status = asked_->Poll();
  answer_ += asked_->ReadOutput();
  if (!status && now - asked_at_ < kEndTimeDeadline) return;
  asked_.reset();
  // A controller that does not answer now has not moved the end.
  if (status != 0) return;
  const auto seconds = TimeOfJob(answer_, "EndTime");
  if (seconds)
    end_ = std::chrono::system_clock::from_time_t(static_cast<std::time_t>(*seconds));
  else
    end_.reset();
}

std::optional<double> JobEndTime::Left() const {
  if (!end_) return std::nullopt;
  return std::chrono::duration<double>(*end_ - std::chrono::system_clock::now()).count();
}

}  // namespace adaptive_train
