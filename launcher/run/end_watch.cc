#include "launcher/run/end_watch.h"

namespace adaptive_train {
namespace {

/// The ranks train on meanwhile; of a short grace it must leave something.
constexpr std::chrono::milliseconds kSlurmPatience{1000};

}  // namespace

EndWatch::Due EndWatch::Poll() {
  job_end_.Poll();
  const auto left = job_end_.Left();
  return {saves_.At(left), left.value_or(0)};
}

std::optional<StopLimits> EndWatch::LimitsOfStop() {
  if (!stop_) stop_.emplace(job_id_, kSlurmPatience);
  return stop_->Poll() ? std::optional(LimitsNow()) : std::nullopt;
}

StopLimits EndWatch::LimitsNow() const {
  // Where slurmctld does not answer in time, the end is the one that it said before.
  auto left = stop_ ? stop_->Left() : std::nullopt;
  if (!left) left = job_end_.Left();
  return left ? saves_.LimitsOf(*left) : StopLimits{};
}

}  // namespace adaptive_train
