#include "launcher/steps/lost_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "core/exit_code.h"
#include "core/file_io.h"
#include "core/rank_exit.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

/// Slurm calls a node down after SlurmdTimeout, 5 minutes unless it is configured.
constexpr std::chrono::minutes kWatchTime{15};
constexpr std::chrono::seconds kCommandDeadline{20};
constexpr unsigned kSecondsBetween = 4;
/// One ping that was lost is no lost host.
constexpr int kTimesSeen = 2;

void SayLost(const std::string& line) {
  fmt::print(stderr, "adaptive-train: {}\n", line);
  std::fflush(stderr);
}

int Requeue(const std::string& job, const std::string& host) {
  // Said before: a requeue ends this process as well, often before scontrol returns.
  SayLost(fmt::format("job {} lost its batch host {}: requeuing it", job, host));
  const auto done = RunCommand({{"scontrol", "requeue", job}, std::nullopt, ""}, kCommandDeadline);
  if (!done || !done->Ok())
    SayLost(fmt::format("job {}: scontrol requeue fails: {}", job,
                        done ? Printable(done->errors) : done.error().message));
  return ToInt(RankExit::kLauncherLost);
}

}  // namespace

bool ShowsLostNode(const std::string& shown) {
  const std::string key = " State=";
  const auto at = shown.find(key);
  if (at == std::string::npos) return false;
  const auto begin = at + key.size();
  const std::string state = shown.substr(begin, shown.find(' ', begin) - begin);
  return state.find("DOWN") != std::string::npos || state.find('*') != std::string::npos ||
         state.find("NOT_RESPONDING") != std::string::npos;
}

int RequeueIfLost(std::int64_t job_id, const std::string& host) {
  ::alarm(0);  // set by the rank that this process was
  const std::string job = std::to_string(job_id);
  int seen = 0;
  for (const auto end = Clock::now() + kWatchTime; Clock::now() < end; ::sleep(kSecondsBetween)) {
    const std::string state = ShownBySlurm({"show", "job", "-o", job});
    if (!state.empty() && state.find(" JobState=RUNNING ") == std::string::npos)
      return ToInt(RankExit::kLauncherLost);
    seen = ShowsLostNode(ShownBySlurm({"show", "node", "-o", host})) ? seen + 1 : 0;
    if (seen >= kTimesSeen) return Requeue(job, host);
  }
  SayLost(fmt::format("job {} has lost its launcher, and its batch host {} lives: not requeued",
                      job, host));
  return ToInt(RankExit::kLauncherLost);
}

}  // namespace adaptive_train
