#include "launcher/measure/allocation_profile.h"

#include <fmt/format.h>

#include <utility>

#include "core/seconds.h"
#include "launcher/nodes/slow_parts.h"

namespace adaptive_train {
namespace {

const char* Plural(std::size_t n) { return n == 1 ? "" : "s"; }

/// Runs a step and adds its results to those measured so far.
Result<void> Measure(const MeasureSite& site, const MeasureTask& task, AllocationProfile& result) {
  auto measured = MeasureLinks(site, task);
  if (!measured) return tl::unexpected(measured.error());
  result.seconds += measured->seconds;
  result.launch_seconds += measured->launch_seconds;
  result.measured = BothLooks(std::move(result.measured), measured->profile);
  return {};
}

MeasureTask TaskOf(const ReusePlan& plan) {
  MeasureTask task;
  task.rounds = RoundsOf(plan.missing);
  if (!plan.check.empty()) task.rounds.push_back(plan.check);
  task.devices = plan.devices;
  task.devices.insert(task.devices.end(), plan.check_devices.begin(), plan.check_devices.end());
  return task;
}

/// What the first step leaves in doubt: all links of nodes whose checked link has changed, and
/// devices of a kind that disagree.
MeasureTask DoubtsAfter(const ReusePlan& plan, const Profile& stored, const Profile& measured,
                        const std::vector<MeasuredNode>& nodes, bool reuse) {
  std::vector<RankPair> known = plan.missing;
  known.insert(known.end(), plan.check.begin(), plan.check.end());
  const std::vector<int> changed =
      reuse ? ChangedNodes(stored, measured, nodes) : std::vector<int>{};
  MeasureTask doubts;
  doubts.rounds = RoundsOf(PairsOf(changed, static_cast<int>(nodes.size()), known));
  doubts.devices = DoubtfulDevices(stored, measured, nodes);
  return doubts;
}

std::string SummaryOf(const ReusePlan& plan, const MeasureTask& doubts, std::size_t nodes,
                      const AllocationProfile& result) {
  const std::size_t all = nodes * (nodes - 1) / 2;
  std::size_t measured = plan.missing.size();
  for (const auto& round : doubts.rounds) measured += round.size();
  const std::string again =
      doubts.devices.empty() ? ""
                             : fmt::format(", {} in doubt measured twice", doubts.devices.size());
  return fmt::format(
      "links: {} of {} pair{} measured, {} checked, {} taken from the store; {} of {} devices "
      "measured, {} checked{}; in {:.2f} s and {:.2f} s of launching",
      measured, all, Plural(all), plan.check.size(), all - measured - plan.check.size(),
      plan.devices.size(), nodes, plan.check_devices.size(), again, result.seconds,
      result.launch_seconds);
}

}  // namespace

Result<AllocationProfile> ProfileAllocation(const MeasureSite& site, const Profile& stored,
                                            bool reuse) {
  const std::vector<MeasuredNode> nodes = MeasuredNodes(site.cluster);
  const ReusePlan plan = PlanReuse(stored, nodes, EpochSecondsNow(), reuse, site.allocation.job_id);
  AllocationProfile result;
  MeasureTask doubts;
  if (!nodes.empty()) {
    auto done = Measure(site, TaskOf(plan), result);
    if (!done) return tl::unexpected(done.error());
    doubts = DoubtsAfter(plan, stored, result.measured, nodes, reuse);
    if (!doubts.rounds.empty() || !doubts.devices.empty()) done = Measure(site, doubts, result);
    if (!done) return tl::unexpected(done.error());
  }
  result.summary = SummaryOf(plan, doubts, nodes.size(), result);
  Profile known = stored;
  if (!reuse) known = {{}, {}, {}, stored.nodes, stored.lost_links};
  result.profile = WithMeasured(std::move(known), result.measured);
  result.slow = FindSlowParts(site.cluster, stored, result.measured);
  return result;
}

}  // namespace adaptive_train
