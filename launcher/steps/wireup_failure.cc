#include "launcher/steps/wireup_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/file_io.h"
#include "core/rank_exit.h"
#include "launcher/steps/stall_cause.h"

namespace adaptive_train {
namespace {

/// Of what a rank says.
constexpr std::size_t kMostCauseBytes = 200;

bool Failed(const RankRecord& rank) {
  return rank.report && rank.report->exit_code == ToInt(RankExit::kWireup);
}

/// The ranks of which `is` holds, by number.
template <class Is>
std::vector<int> Those(std::span<const RankRecord> ranks, Is is) {
  std::vector<int> those;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (is(ranks[i])) those.push_back(static_cast<int>(i));
  return those;
}

/// As it was before the ranks that failed stopped waiting.
std::vector<RankRecord> WhileTheyWaited(std::span<const RankRecord> ranks) {
  std::vector<RankRecord> then(ranks.begin(), ranks.end());
  for (RankRecord& rank : then) {
    if (!Failed(rank) || !rank.status || rank.report->peer < 0) continue;
    rank.status->operation = rank.report->operation;
    const auto peer = std::ranges::find(rank.status->peers, rank.report->peer, &PeerTraffic::rank);
    if (peer != rank.status->peers.end()) peer->awaited = std::max<std::int64_t>(1, peer->awaited);
  }
  return then;
}

std::string NotInTime(const char* what, std::span<const RankRecord> ranks, bool RankRecord::*has) {
  const std::vector<int> late =
      Those(ranks, [has](const RankRecord& rank) { return !(rank.*has); });
  if (late.empty()) return "";
  const RankRecord& first = ranks[static_cast<std::size_t>(late.front())];
  return fmt::format("{} ({}{}) did not {} in time", NameRanks(late), first.host,
                     late.size() > 1 ? ", ..." : "", what);
}

}  // namespace

std::string DescribeWireup(std::span<const RankRecord> ranks) {
  const std::vector<int> failed = Those(ranks, Failed);
  if (failed.empty()) {
    std::string line = NotInTime("reach the launcher", ranks, &RankRecord::hello);
    if (line.empty()) line = NotInTime("end PMIx_Init", ranks, &RankRecord::ready);
    if (line.empty()) line = NotInTime("reach all others", ranks, &RankRecord::wired);
    return line.empty() ? "the ranks were not wired up in time" : line;
  }
  const RankFailure& first = *ranks[static_cast<std::size_t>(failed.front())].report;
  const std::string what = fmt::format("{}: {}", Printable(first.operation, kMostCauseBytes),
                                       Printable(first.cause, kMostCauseBytes));
  if (first.peer < 0) return fmt::format("{} on {}", what, NameRanks(failed));
  const std::vector<RankRecord> then = WhileTheyWaited(ranks);
  return fmt::format("{}: {}", what, Describe(FindStallCause(then), then));
}

}  // namespace adaptive_train
