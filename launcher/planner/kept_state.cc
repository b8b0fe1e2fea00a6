#include "launcher/planner/kept_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/keeping_rule.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {
namespace {

constexpr double kMiB = 1 << 20;
/// Parameters and two moments, and residuals, in float32.
constexpr double kStateBytes = 12, kResidualBytes = 4;

/// Of the arena of each rank of a stage.
double ElementsOf(const ModelShape& shape, const Plan& plan, const StagePlan& stage) {
  double elements = 0;
  for (const StageLayers& chunk : stage.chunks)
    for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer)
      elements += static_cast<double>(shape.layers[static_cast<std::size_t>(layer)].parameters);
  return elements / plan.tensor;
}

void NoteSwitches(const Cluster& cluster, Plan& plan) {
  std::map<std::string, const Node*> nodes;
  for (const Node& node : cluster.nodes) nodes.emplace(node.name, &node);
  for (RankPlan& rank : plan.ranks)
    if (const auto found = nodes.find(rank.device.node); found != nodes.end())
      rank.switches = found->second->switches;
}

}  // namespace

std::vector<double> KeptBytes(const ModelShape& shape, const Plan& plan) {
  const bool residuals = plan.data > 1 && HoldsBack(plan.orders.compression.mode);
  const std::vector<KeptParts> parts = KeptPartsOf(plan);
  std::vector<double> bytes(parts.size(), 0.0);
  const auto add = [&](std::size_t rank, const KeptPart& part, double size) {
    bytes[rank] += kKeptSlots * size;
    if (part.buddy != kNoBuddy) bytes[static_cast<std::size_t>(part.buddy)] += kKeptSlots * size;
  };
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const auto stage = static_cast<std::size_t>(plan.ranks[rank].stage);
    const double elements = ElementsOf(shape, plan, plan.stages[stage]);
    add(rank, parts[rank].state,
        kStateBytes * elements / static_cast<double>(parts[rank].state.places));
    if (residuals) add(rank, parts[rank].residuals, kResidualBytes * elements);
  }
  return bytes;
}

void CountKeptState(const ModelShape& shape, const Cluster& cluster, Plan& plan) {
  NoteSwitches(cluster, plan);
  if (!plan.orders.keeping.on) return;
  const std::vector<double> kept = KeptBytes(shape, plan);
  for (std::size_t rank = 0; rank < kept.size(); ++rank) {
    const RankPlan& own = plan.ranks[rank];
    const double left = kMemoryShare * static_cast<double>(own.device.memory_bytes) -
                        static_cast<double>(own.memory_bytes);
    if (kept[rank] <= left) continue;
    plan.orders.keeping.on = false;
    plan.why.push_back(
        fmt::format("the state is not kept in memory: rank {} on {} would need {:.0f} MiB for it, "
                    "{:.0f} MiB are left",
                    rank, own.device.node, kept[rank] / kMiB, std::max(0.0, left) / kMiB));
    return;
  }
  for (std::size_t rank = 0; rank < kept.size(); ++rank) {
    std::int64_t& bytes = plan.ranks[rank].memory_bytes;
    bytes += static_cast<std::int64_t>(kept[rank]);
    plan.memory_bytes = std::max(plan.memory_bytes, bytes);
  }
}

}  // namespace adaptive_train
