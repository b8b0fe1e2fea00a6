#include "runtime/train/joint_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/exit_code.h"
#include "runtime/comm/collective.h"
#include "runtime/comm/communicator.h"
#include "runtime/train/stall_watch.h"

namespace adaptive_train {
namespace {

/// Between two looks at each other.
constexpr std::chrono::milliseconds kBetweenLooks{200};
/// Of an error's line; the rest is cut off.
constexpr std::size_t kMostText = 1000;

/// What the thread and the rank share; the thread may outlive the rank's wait.
struct Running {
  std::atomic<std::int64_t> done{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<void>> outcome;  // guarded by mutex

  bool WaitUntilOver() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kBetweenLooks, [this] { return outcome.has_value(); });
  }
};

void Start(const std::shared_ptr<Running>& running, const WorkPart& part) {
  std::thread([running, part] {
    Result<void> outcome;
    try {
      outcome = part(running->done);
    } catch (const std::exception& error) {
      outcome = Fail(error.what(), ExitCode::kRankFailure);
    }
    const std::lock_guard lock(running->mutex);
    running->outcome = std::move(outcome);
    running->changed.notify_all();
  }).detach();
}

/// The error of the lowest rank whose outcome is one. Its characters and its errno travel as
/// numbers of a sum to which that rank alone adds.
Error FirstError(Group& group, const Result<void>& outcome) {
  const Error mine = outcome ? Error{} : outcome.error();
  const auto rank = static_cast<std::size_t>(group.Rank());
  std::vector<double> failed(static_cast<std::size_t>(group.Size()), 0.0);
  failed[rank] = outcome ? 0 : 1;
  SumOverRanks(group, failed);
  const auto first = std::find(failed.begin(), failed.end(), 1.0) - failed.begin();
  std::vector<double> letters(kMostText + 1, 0.0);
  if (static_cast<std::size_t>(first) == rank) {
    for (std::size_t i = 0; i < std::min(mine.message.size(), kMostText); ++i)
      letters[i] = static_cast<unsigned char>(mine.message[i]);
    letters[kMostText] = mine.system_error;
  }
  SumOverRanks(group, letters);
  std::string text;
  for (std::size_t i = 0; i < kMostText && letters[i] > 0; ++i)
    text += static_cast<char>(static_cast<unsigned char>(letters[i]));
  return {text, ExitCode::kRankFailure, static_cast<int>(letters[kMostText])};
}

}  // namespace

Result<void> DoJointly(Group& group, std::chrono::seconds patience, const std::string& what,
                       const WorkPart& part) {
  group.communicator().transport().main_thread().WorksAt(what);
  const auto running = std::make_shared<Running>();
  Start(running, part);
  StallWatch watch(patience);
  std::array<double, 3> sums;  // ranks at work, ranks that failed, what is done
  do {
    const bool over = running->WaitUntilOver();
    const bool failed = over && !*running->outcome;
    sums = {over ? 0.0 : 1.0, failed ? 1.0 : 0.0, static_cast<double>(running->done)};
    SumOverRanks(group, sums);
    if (sums[0] > 0 && watch.Stalled(sums[2])) {
      throw FatalError(
          RankExit::kCheckpoint, what, FatalError::kNoPeer,
          fmt::format("nothing moved for {} s (checkpoint.patience_s)", patience.count()));
    }
  } while (sums[0] > 0);
  if (sums[1] == 0) return {};
  return tl::unexpected(FirstError(group, *running->outcome));
}

}  // namespace adaptive_train
