#include "launcher/steps/job_end_time.h"

#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kAskEvery{60};
/// An answer that takes longer will not come.
constexpr std::chrono::seconds kEndTimeDeadline{20};
/// Who calls Poll does so many times a second.
constexpr std::chrono::seconds kPause{5};

}  // namespace

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
