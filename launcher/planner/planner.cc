#include "launcher/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "launcher/planner/devices.h"

namespace adaptive_train {
namespace {

constexpr double kMemoryShare = 0.9;  // of a device; the rest is the system's and the transports'
constexpr double kMiB = 1 << 20;

tl::unexpected<Error> NoPlan(std::string why) {
  return Fail("no feasible plan: " + std::move(why), ExitCode::kNoPlan);
}

/// The `count` fastest devices in the order of the cluster, or devices shared by several ranks if
/// there are fewer.
std::vector<Device> Choose(const Cluster& cluster, std::size_t count,
                           std::vector<std::string>& why) {
  std::vector<std::size_t> order(cluster.devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return SpeedOf(cluster, cluster.devices[a]) > SpeedOf(cluster, cluster.devices[b]);
  });
  std::vector<std::size_t> ranks_on(cluster.devices.size());
  for (std::size_t i = 0; i < count; ++i) ++ranks_on[order[i % order.size()]];
  std::vector<Device> chosen;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    for (std::size_t i = 0; i < ranks_on[d]; ++i) {
      Device device = cluster.devices[d];
      device.threads = std::max(1, device.threads / static_cast<int>(ranks_on[d]));
      device.memory_bytes /= static_cast<std::int64_t>(ranks_on[d]);
      chosen.push_back(device);
    }
    if (ranks_on[d] > 1)
      why.push_back(fmt::format("{} runs {} ranks, which share its CPUs and memory",
                                cluster.devices[d].node, ranks_on[d]));
    if (ranks_on[d] == 0)
      why.push_back(
          fmt::format("{} is left out: fewer ranks than devices", cluster.devices[d].node));
  }
  return chosen;
}

/// The largest micro-batch up to the rank's share that fits its memory; 0 if not even one sequence
/// does.
std::int64_t LargestMicroBatch(const ModelShape& model, const RankPlan& rank, std::int64_t ranks) {
  const double limit = kMemoryShare * static_cast<double>(rank.device.memory_bytes);
  std::int64_t fits = 0, too_large = rank.samples + 1;
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    const auto bytes = static_cast<double>(model.PeakBytes(middle, ranks, rank.device.threads));
    (bytes <= limit ? fits : too_large) = middle;
  }
  return fits;
}

Result<std::size_t> CountRanks(const Cluster& cluster, const PlanRequest& request,
                               std::vector<std::string>& why) {
  const auto batch = static_cast<std::size_t>(request.global_batch);
  if (cluster.devices.empty()) return NoPlan("the nodes have no device");
  if (request.data_parallel) {
    const auto ranks = static_cast<std::size_t>(*request.data_parallel);
    if (ranks > batch)
      return NoPlan(fmt::format(
          "parallel.data = {} needs train.global_batch of at least that, not {}", ranks, batch));
    why.push_back(fmt::format("{} ranks: parallel.data says so", ranks));
    return ranks;
  }
  if (batch < cluster.devices.size()) {
    why.push_back(fmt::format("{} ranks on {} devices: train.global_batch has no more sequences",
                              batch, cluster.devices.size()));
    return batch;
  }
  why.push_back(
      fmt::format("{} ranks: one for each device, data parallel", cluster.devices.size()));
  return cluster.devices.size();
}

Result<void> SetMicroBatches(const ModelShape& model, const PlanRequest& request, Plan& plan) {
  const auto ranks = static_cast<std::int64_t>(plan.ranks.size());
  for (RankPlan& rank : plan.ranks) {
    const std::int64_t largest = LargestMicroBatch(model, rank, ranks);
    const std::int64_t wanted = std::min(request.micro_batch.value_or(largest), rank.samples);
    if (largest == 0 || wanted > largest) {
      return NoPlan(fmt::format(
          "rank {} on {} needs {:.0f} MiB for a micro-batch of {}, {:.0f} % of its {:.0f} MiB may "
          "be used",
          rank.rank, rank.device.node,
          static_cast<double>(
              model.PeakBytes(std::max<std::int64_t>(wanted, 1), ranks, rank.device.threads)) /
              kMiB,
          std::max<std::int64_t>(wanted, 1), 100 * kMemoryShare,
          static_cast<double>(rank.device.memory_bytes) / kMiB));
    }
    rank.micro_batch = wanted;
    plan.memory_bytes =
        std::max(plan.memory_bytes, model.PeakBytes(wanted, ranks, rank.device.threads));
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> Apportion(std::int64_t total, const std::vector<double>& weights) {
  const std::size_t n = weights.size();
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> shares(n);
  std::vector<double> remainder(n);
  std::int64_t left = total;
  for (std::size_t i = 0; i < n; ++i) {
    const double exact = static_cast<double>(total) * weights[i] / sum;
    shares[i] = std::max<std::int64_t>(1, static_cast<std::int64_t>(exact));
    remainder[i] = exact - static_cast<double>(shares[i]);
    left -= shares[i];
  }
  // What rounding left goes to the largest remainders; what raising to 1 took comes from the
  // smallest.
  for (; left != 0; left += left > 0 ? -1 : 1) {
    std::size_t best = n;
    for (std::size_t i = 0; i < n; ++i) {
      if (left < 0 && shares[i] == 1) continue;
      if (best == n || (left > 0 ? remainder[i] > remainder[best] : remainder[i] < remainder[best]))
        best = i;
    }
    shares[best] += left > 0 ? 1 : -1;
    remainder[best] -= left > 0 ? 1 : -1;
  }
  return shares;
}

Result<Plan> MakePlan(const Cluster& cluster, const ModelShape& model, const PlanRequest& request) {
  Plan plan;
  plan.global_batch = request.global_batch;
  auto count = CountRanks(cluster, request, plan.why);
  if (!count) return tl::unexpected(count.error());
  const auto devices = Choose(cluster, *count, plan.why);
  std::vector<double> speeds;
  for (const Device& device : devices) {
    const double threads = request.threads ? static_cast<double>(*request.threads)
                                           : static_cast<double>(device.threads);
    speeds.push_back(
        std::min({SpeedOf(cluster, device), static_cast<double>(device.threads), threads}));
  }
  const auto shares = Apportion(request.global_batch, speeds);
  std::int64_t next = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    RankPlan rank;
    rank.rank = static_cast<int>(i);
    rank.device = devices[i];
    if (request.threads) rank.device.threads = static_cast<int>(*request.threads);
    // More threads than the quota pays for would only be throttled together.
    if (!request.threads)
      rank.device.threads =
          std::max(1, std::min(rank.device.threads, static_cast<int>(std::ceil(speeds[i]))));
    rank.first_sample = next;
    rank.samples = shares[i];
    next += shares[i];
    plan.ranks.push_back(rank);
  }
  auto sized = SetMicroBatches(model, request, plan);
  if (!sized) return tl::unexpected(sized.error());
  if (request.threads && *request.threads > devices.front().threads) {
    plan.why.push_back(fmt::format(
        "device.threads = {} is more than the {} CPUs that {} offers a rank: they take turns",
        *request.threads, devices.front().threads, devices.front().node));
  }
  const auto [low, high] = std::minmax_element(speeds.begin(), speeds.end());
  plan.why.push_back(
      *low == *high
          ? "equal shares up to rounding: all devices offer the same number of CPUs"
          : fmt::format("shares follow the CPUs that each device may use ({:.2f} to {:.2f})", *low,
                        *high));
  plan.why.push_back("gradients: dense float32 ring all-reduce, buckets sent while backward runs");
  plan.why.push_back("step time not predicted: no layer has been measured on these devices yet");
  return plan;
}

std::string DescribePlan(const Plan& plan, const Cluster& cluster, const ModelShape& model) {
  std::string out = fmt::format(
      "Plan for {} ({} nodes): {:.3f} M parameters, {} sequences of {} tokens a step, {} ranks, "
      "{:.0f} MiB on the fullest rank\n",
      cluster.name, cluster.nodes.size(), static_cast<double>(model.total.parameters) / 1e6,
      plan.global_batch, model.dims.sequence, plan.ranks.size(),
      static_cast<double>(plan.memory_bytes) / kMiB);
  constexpr std::size_t kShown = 32;
  for (std::size_t i = 0; i < std::min(plan.ranks.size(), kShown); ++i) {
    const RankPlan& rank = plan.ranks[i];
    out += fmt::format(
        "  rank {} on {}: {} ({} thread{}), {} sequence{} a step in micro-batches of {}\n",
        rank.rank, rank.device.node,
        rank.device.model.empty() ? rank.device.kind : rank.device.model, rank.device.threads,
        rank.device.threads == 1 ? "" : "s", rank.samples, rank.samples == 1 ? "" : "s",
        rank.micro_batch);
  }
  if (plan.ranks.size() > kShown)
    out += fmt::format("  and {} more ranks, see plan.json\n", plan.ranks.size() - kShown);
  for (const std::string& why : plan.why) out += "  - " + why + "\n";
  return out;
}

}  // namespace adaptive_train
