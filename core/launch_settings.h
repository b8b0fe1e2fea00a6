// Derives deadlines and the ports of the control channel from [launch] and the number of ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "core/config.h"
#include "core/limits.h"
#include "core/result.h"

namespace adaptive_train {

/// Deadlines of the parts of a launch. More ranks take longer: Slurm starts them in a tree, but one
/// launcher greets them all, and a fence visits each of them.
struct LaunchDeadlines {
  std::chrono::milliseconds hello = kHelloDeadline;  // start of the step to the last hello
  std::chrono::milliseconds spread = kHelloSpread;   // first hello to the last PMIx_Init
  std::chrono::milliseconds pmix_init = kPmixInitDeadline;
  std::chrono::milliseconds fence = kFenceDeadline;           // also for the first sum
  std::chrono::milliseconds short_step = kShortStepDeadline;  // one command on every node
  // After which silence, while the ranks run, one side takes the other for lost.
  std::chrono::milliseconds rank_silence = kRankSilenceLimit;
  std::chrono::milliseconds launcher_silence = kLauncherSilenceLimit;

  /// From "go" to every rank's "wired": a fence, the gets, the first sum.
  std::chrono::milliseconds Wiring() const { return 2 * fence + 2s; }
};

/// `ranks` is the number of ranks, or of nodes for a command on each. Configured keys are used as
/// they are.
LaunchDeadlines DeadlinesOf(const LaunchConfig& launch, std::size_t ranks);

/// When the ranks of a launch said hello.
struct HelloTimes {
  std::chrono::milliseconds first{0};   // from the start of the step to the first hello
  std::chrono::milliseconds spread{0};  // from there to the last
};

/// How long hellos are waited for in a run that has launched ranks before, which took `usual`: five
/// times that for the first, ten times for the others. Neither is less than a rank may be silent, or
/// more than its deadline. A configured hello_seconds stays.
HelloTimes HelloDeadlinesAgain(const LaunchConfig& launch, const LaunchDeadlines& deadlines,
                               const HelloTimes& usual);

/// Ports that the launcher may listen on.
struct PortRange {
  int first = 0, last = 0;  // 0: any free port
};

/// "auto" or "FIRST-LAST", 1 to 65535.
Result<PortRange> ParsePorts(const std::string& text);

}  // namespace adaptive_train
