#include "launcher/run/plan_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/device_kind.h"
#include "core/limits.h"
#include "core/runnable_plan.h"
#include "core/seconds.h"
#include "launcher/measure/layer_records.h"
#include "launcher/measure/profile_reuse.h"
#include "launcher/planner/kept_state.h"
#include "launcher/run/plan_request.h"

namespace adaptive_train {
namespace {

/// Larger clusters are not planned a second time only to mention what another version could do.
constexpr std::size_t kSmallCluster = 64;

/// In bytes per second. Slower links take longer for what zstd saves of four bits, .19 bytes of an
/// element there and back, than .4 of a core takes for writing and reading it, 3.3 ns. Those are
/// equal at 58 MB/s; links' time is mostly hidden behind backward, processors' time never.
constexpr double kSlowLink = 40e6;

/// Between nodes of the cluster, by measurements; infinite if there are none.
double SlowestLink(const Cluster& cluster, const Profile& profile) {
  std::unordered_set<std::string> nodes;
  for (const Device& device : cluster.devices) nodes.insert(device.node);
  double slowest = std::numeric_limits<double>::infinity();
  for (const LinkMeasurement& link : profile.links) {
    if (link.from != link.to && nodes.contains(link.from) && nodes.contains(link.to))
      slowest = std::min(slowest, link.bytes_per_second);
  }
  return slowest;
}

/// The request as it is planned: with zstd for gradients in four bits where a link is slow.
PlanRequest RequestOf(const PlanInputs& inputs) {
  PlanRequest request = inputs.request;
  if (request.compression && request.compression->packed)
    request.compression->zstd = SlowestLink(inputs.cluster, inputs.profile) < kSlowLink;
  return request;
}

/// The possible gain of a version that runs every kind of plan, if known.
std::string BetterElsewhere(const PlanInputs& inputs, const Plan& plan, PlanRequest free,
                            const std::stop_token& stop) {
  if (!free.runnable_only || free.even_shares || !plan.step_seconds ||
      inputs.cluster.devices.size() > kSmallCluster)
    return "";
  free.runnable_only = false;
  auto best = MakePlan(inputs.cluster, inputs.dims, inputs.format, inputs.profile, free, stop);
  constexpr double kWorthTelling = 0.98;
  if (!best || !best->plan.step_seconds ||
      *best->plan.step_seconds > kWorthTelling * *plan.step_seconds)
    return "";
  best->plan.orders = inputs.orders;
  const std::string lacks = NotRunnable(best->plan);
  if (lacks.empty()) return "";
  return fmt::format("{:.3f} s would be possible with {}, which this version cannot run",
                     *best->plan.step_seconds, lacks);
}

}  // namespace

PlanInputs InputsOf(const Config& config, Cluster cluster, Profile profile) {
  PlanInputs inputs{std::move(cluster), DimsOf(config.model), FormatOf(config.train),
                    std::move(profile), RequestOf(config),    OrdersOf(config)};
  inputs.request.runnable_only = true;
  return inputs;
}

Result<GatheredInputs> GatherInputs(const Config& config, Cluster cluster, Profile profile,
                                    int spares) {
  auto chosen = ChooseSpares(cluster, profile, spares);
  if (!chosen) return tl::unexpected(chosen.error());
  KeepAside(*chosen, cluster);
  return GatheredInputs{InputsOf(config, std::move(cluster), std::move(profile)),
                        std::move(*chosen)};
}

Result<PlannedRun> PlanAndProblemFor(const PlanInputs& inputs, const std::stop_token& stop) {
  const PlanRequest request = RequestOf(inputs);
  auto made = MakePlan(inputs.cluster, inputs.dims, inputs.format, inputs.profile, request, stop);
  if (!made) return tl::unexpected(made.error());
  Plan& plan = made->plan;
  if (std::string better = BetterElsewhere(inputs, plan, request, stop); !better.empty())
    plan.why.push_back(std::move(better));
  plan.orders = inputs.orders;
  if (plan.data > 1 && request.compression && request.compression->zstd) {
    plan.orders.compression.zstd = true;
    plan.why.push_back(fmt::format(
        "what goes in four bits goes through zstd too: a link has less than {:.0f} MB/s",
        kSlowLink / 1e6));
  }
  CountKeptState(ModelShape::Of(inputs.dims, inputs.format), inputs.cluster, plan);
  return made;
}

Result<Plan> PlanFor(const PlanInputs& inputs, const std::stop_token& stop) {
  auto made = PlanAndProblemFor(inputs, stop);
  if (!made) return tl::unexpected(made.error());
  return std::move(made->plan);
}

Result<void> CheckRunnable(const Plan& plan) {
  if (plan.ranks.size() > kMostRanks)
    return Fail(
        fmt::format("{} ranks: at most {} can train together; set parallel.data to that or less",
                    plan.ranks.size(), kMostRanks));
  const std::string lacks = NotRunnable(plan);
  if (lacks.empty()) return {};
  return Fail("planned, but this version cannot run " + lacks +
                  ": leave the key at \"auto\", or see the plan with adaptive-train plan --ideal",
              ExitCode::kNoPlan);
}

Result<Plan> Runnable(Result<Plan> plan) {
  if (!plan) return plan;
  if (auto runs = CheckRunnable(*plan); !runs) return tl::unexpected(runs.error());
  return plan;
}

std::vector<LayerMeasurement> RecordsOf(const PlanInputs& inputs, const Plan& plan,
                                        const std::vector<LayerTimes>& times) {
  auto records = LayerRecords(plan, ModelKey(ModelShape::Of(inputs.dims, inputs.format)), times,
                              EpochSecondsNow());
  // Profiles hold times without recomputation; docs/planning.md adds it. The head computes its
  // gradients in forward, so that its backward may be short; times stay positive.
  constexpr double kLeastShare = 0.01;
  const double again = PlanProblem{}.recompute_share[static_cast<std::size_t>(plan.recompute)];
  for (LayerMeasurement& record : records)
    record.backward_s =
        std::max(kLeastShare * record.backward_s, record.backward_s - again * record.forward_s);
  return records;
}

PlanSearch SearchFrom(const PlanInputs& inputs, const Plan& plan) {
  return [inputs, plan](const std::vector<LayerTimes>& times,
                        const std::stop_token& stop) -> Result<PlanPair> {
    PlanInputs with = inputs;
    Profile fresh;
    fresh.layers = RecordsOf(inputs, plan, times);
    with.profile = WithMeasured(std::move(with.profile), fresh);
    auto now =
        PriceAgain(plan, with.cluster, with.dims, with.format, with.profile, RequestOf(with));
    if (!now) return tl::unexpected(now.error());
    now->orders = plan.orders;
    auto candidate = PlanFor(with, stop);
    if (!candidate) return tl::unexpected(candidate.error());
    return PlanPair{std::move(*now), std::move(*candidate), LayerError(fresh.layers)};
  };
}

}  // namespace adaptive_train
