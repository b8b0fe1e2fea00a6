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

StopLimits EndWatch::LimitsOfStop() const {
  const auto left = job_end_.LeftNow(kSlurmPatience);
  return left ? saves_.LimitsOf(*left) : StopLimits{};
}

}  // namespace adaptive_train
