#include "launcher/run/injections.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/file_io.h"
#include "core/rank_exit.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;

std::string FileOf(const RunFolder& folder) { return folder.Path() + "/" + kInjectionsFile; }

}  // namespace

Result<std::vector<Injection>> AllowedInjections(const std::string& typed, const Config& config) {
  if (typed.empty()) return std::vector<Injection>{};
  auto injections = ParseInjections(typed);
  if (!injections) return FailIn("--inject", injections.error());
  if (!config.recovery.allow_injection)
    return Fail(
        "--inject: not permitted: set recovery.allow_injection = true in the configuration");
  if (::access(kForbidInjectionFile, F_OK) == 0)
    return Fail(fmt::format("--inject: forbidden on this host by {}", kForbidInjectionFile));
  for (const Injection& injection : *injections)
    if (std::max(injection.step, injection.last_step) > config.train.steps)
      return Fail(fmt::format("--inject: {}: the last step is {} (train.steps)", ToText(injection),
                              config.train.steps));
  return injections;
}

Result<void> CheckInjections(const std::vector<Injection>& injections, const Plan& plan) {
  for (const Injection& injection : injections) {
    const auto ranks = static_cast<int>(plan.ranks.size());
    if (injection.rank >= ranks)
      return Fail(
          fmt::format("--inject: {}: the plan has ranks 0 to {}", ToText(injection), ranks - 1));
    if (injection.node.empty()) continue;
    const bool trains = std::ranges::any_of(
        plan.ranks, [&](const RankPlan& rank) { return rank.device.node == injection.node; });
    if (trains) continue;
    std::string nodes;
    for (const RankPlan& rank : plan.ranks)
      if (nodes.find(rank.device.node) == std::string::npos)
        nodes += (nodes.empty() ? "" : ", ") + rank.device.node;
    return Fail(fmt::format("--inject: {}: no rank runs there; the plan's nodes are {}",
                            ToText(injection), nodes));
  }
  return {};
}

Injections::Injections(std::vector<Injection> asked, RunFolder& folder) : folder_(folder) {
  std::vector<RunInjection> before;
  if (const auto text = ReadFile(FileOf(folder), kMostFileBytes); text && !asked.empty())
    before = InjectionsFromJson(*text).value_or(before);
  for (Injection& injection : asked) {
    const bool done = std::ranges::any_of(
        before, [&](const RunInjection& one) { return one.done && one.injection == injection; });
    injections_.push_back({std::move(injection), done});
  }
}

Result<void> Injections::BeginRanks() {
  struck_.clear();
  if (!injections_.empty()) return Write();
  ::unlink(FileOf(folder_).c_str());
  return {};
}

bool Injections::Happened(int rank, const std::string& fault) {
  const auto found = std::ranges::find_if(
      injections_, [&](const RunInjection& one) { return ToText(one.injection) == fault; });
  if (found == injections_.end()) return false;
  struck_[rank] = found->injection.kind;
  if (std::exchange(found->done, true)) return false;
  // Without the file it may happen again where the launcher begins anew; the run itself goes on.
  (void)Write();
  return true;
}

bool Injections::Explain(const Diagnosis& failure) const {
  const bool slow = failure.failure.kind == FailureKind::kSlow;
  for (const int rank : {failure.failure.rank, failure.failure.peer}) {
    const auto struck = struck_.find(rank);
    if (struck == struck_.end() || slow != (struck->second == Injection::Kind::kSlow)) continue;
    if (slow) return true;
    const bool of_a_save = struck->second == Injection::Kind::kFailSave;
    if (of_a_save == (failure.failure.exit_code == ToInt(RankExit::kCheckpoint))) return true;
  }
  return false;
}

Result<void> Injections::Write() const {
  return folder_.Write(kInjectionsFile, ToJson(injections_));
}

}  // namespace adaptive_train
