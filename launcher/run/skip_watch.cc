#include "launcher/run/skip_watch.h"

#include <fmt/format.h>

namespace adaptive_train {
namespace {

constexpr const char* kAdvice =
    "their gradients were not finite; lower optimizer.lr, look at the data, or start from an older "
    "checkpoint";

}  // namespace

Result<void> SkipWatch::See(std::int64_t step, bool skipped) {
  ++seen_;
  skipped_ += skipped ? 1 : 0;
  in_a_row_ = skipped ? in_a_row_ + 1 : 0;
  if (limit_ == 0 || in_a_row_ < limit_) return {};
  return Fail(
      fmt::format("{} steps in a row were skipped, the last was step {} (train.skip_limit): {}",
                  in_a_row_, step, kAdvice),
      ExitCode::kRankFailure);
}

Result<void> SkipWatch::AtEnd() const {
  if (seen_ == 0 || skipped_ < seen_) return {};
  return Fail(
      fmt::format("every one of {} steps was skipped, nothing was learned: {}", seen_, kAdvice),
      ExitCode::kRankFailure);
}

}  // namespace adaptive_train
