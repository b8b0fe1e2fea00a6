#include "launcher/run/memory_save.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/file_io.h"
#include "core/running_clock.h"
#include "launcher/steps/child_process.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr int kLookMilliseconds = 20;
/// Of a worker's error line.
constexpr std::size_t kMaxWords = 400;

/// The last line of what the worker has said: the step.
Result<std::int64_t> StepIn(const std::string& said) {
  const auto begin = said.find_last_of('\n', said.size() - 2) + 1;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(said.data() + begin, said.data() + said.size(), step);
  if (said.size() < 2 || error != std::errc() || *end != '\n')
    return Fail("the worker did not say what it has saved", ExitCode::kRankFailure);
  return step;
}

/// What no state in memory helps against.
constexpr FailureKind kInVain[] = {FailureKind::kDiverged, FailureKind::kDiskFull,
                                   FailureKind::kQuota, FailureKind::kStorage,
                                   FailureKind::kConfiguration};

}  // namespace

bool NeedsMemory(const RunOutcome& outcome) {
  if (outcome.at_once) return false;
  if (!outcome.failure) return outcome.unsaved;
  return std::ranges::find(kInVain, outcome.failure->failure.kind) == std::end(kInVain);
}

Result<std::int64_t> SaveFromMemory(const MemorySave& save) {
  auto worker = ChildProcess::Start({{save.worker, "save-memory", save.run_dir, save.kept,
                                      std::to_string(save.least), std::to_string(save.committed)},
                                     std::nullopt,
                                     ""});
  if (!worker) return tl::unexpected(worker.error());
  const RunningClock::Watched clock;  // at each turn
  const auto begun = RunningClock::now();
  auto moved = begun;
  std::string said, errors;
  for (;;) {
    const auto status = worker->Poll();  // before reading: what came before the end is then read
    const std::string more = worker->ReadOutput();
    said += more;
    errors += worker->ReadErrors();
    const auto now = RunningClock::now();
    if (!more.empty()) moved = now;
    if (status == 0) return StepIn(said);
    if (status) {
      while (!errors.empty() && errors.back() == '\n') errors.pop_back();
      return Fail(errors.empty() ? "the worker ended: " + DescribeExit(*status)
                                 : Printable(errors, kMaxWords),
                  ExitCode::kRankFailure);
    }
    if (const auto signal = PendingStopSignal()) return tl::unexpected(StoppedBy(*signal));
    if (now - moved > save.patience)
      return Fail(fmt::format("nothing was written for {} s (checkpoint.patience_s)",
                              save.patience.count()),
                  ExitCode::kRankFailure);
    if (save.end_s && std::chrono::duration<double>(now - begun).count() > *save.end_s)
      return Fail("the job's time was over", ExitCode::kRankFailure);
    ::poll(nullptr, 0, kLookMilliseconds);
  }
}

}  // namespace adaptive_train
