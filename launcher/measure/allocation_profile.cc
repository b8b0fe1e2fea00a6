#include "launcher/measure/allocation_profile.h"
#include "launcher/nodes/slow_parts.h"

#include <fmt/format.h>

#include <utility>

#include "core/seconds.h"

namespace adaptive_train {
namespace {

const char* Plural(std::size_t n) { return n == 1 ? "" : "s"; }

/// Runs a step and adds it to what was measured so far.
Result<void> Measure(const MeasureSite& site, const MeasureTask& task, AllocationProfile& result) {
  auto measured = MeasureLinks(site, task);
  if (!measured) return tl::unexpected(measured.error());
  result.seconds += measured->seconds;
  result.launch_seconds += measured->launch_seconds;
  result.measured = WithMeasured(std::move(result.measured), measured->profile);
  return {};
}

MeasureTask TaskOf(const ReusePlan& plan) {
  MeasureTask task;
  task.rounds = RoundsOf(plan.missing);
  if (!plan.check.empty()) task.rounds.push_back(plan.check);
  task.devices = plan.devices;
  return task;
}

}  // namespace

Result<AllocationProfile> ProfileAllocation(const MeasureSite& site, const Profile& stored,
                                            bool reuse) {
  const std::vector<MeasuredNode> nodes = MeasuredNodes(site.cluster);
  const int size = static_cast<int>(nodes.size());
  const ReusePlan plan = PlanReuse(stored, nodes, EpochSecondsNow(), reuse, site.allocation.job_id);
  AllocationProfile result;
  std::size_t again = 0;
  if (!plan.missing.empty() || !plan.check.empty() || !plan.devices.empty()) {
    auto done = Measure(site, TaskOf(plan), result);
    if (!done) return tl::unexpected(done.error());
    std::vector<RankPair> known = plan.missing;
    known.insert(known.end(), plan.check.begin(), plan.check.end());
    const std::vector<int> changed =
        reuse ? ChangedNodes(stored, result.measured, nodes) : std::vector<int>{};
    MeasureTask rest;
    const std::vector<RankPair> doubtful = PairsOf(changed, size, known);
    again = doubtful.size();
    rest.rounds = RoundsOf(doubtful);
    if (again > 0) done = Measure(site, rest, result);
    if (!done) return tl::unexpected(done.error());
  }
  const std::size_t all = static_cast<std::size_t>(size) * static_cast<std::size_t>(size - 1) / 2;
  const std::size_t measured = plan.missing.size() + again;
  result.summary = fmt::format(
      "links: {} of {} pair{} measured, {} checked, {} taken from the store; {} of {} devices "
      "measured; in {:.2f} s and {:.2f} s of launching",
      measured, all, Plural(all), plan.check.size(), all - measured - plan.check.size(),
      plan.devices.size(), size, result.seconds, result.launch_seconds);
  Profile known = stored;
  if (!reuse) known = {{}, {}, {}, stored.nodes};
  result.profile = WithMeasured(std::move(known), result.measured);
  result.slow = FindSlowParts(site.cluster, stored, result.measured);
  return result;
}

}  // namespace adaptive_train
