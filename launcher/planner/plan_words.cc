#include "launcher/planner/plan_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "launcher/planner/problem.h"

namespace adaptive_train {
namespace {

constexpr double kMiB = 1 << 20;
constexpr std::size_t kShown = 32;

const char* Plural(std::int64_t count) { return count == 1 ? "" : "s"; }

std::string Seconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", 1e3 * seconds) : fmt::format("{:.3f} s", seconds);
}

std::string LayersOf(const StagePlan& stage) {
  std::string out;
  for (const StageLayers& chunk : stage.chunks)
    out += (out.empty() ? "" : ", ") +
           (chunk.end_layer - chunk.first_layer == 1
                ? fmt::format("layer {}", chunk.first_layer)
                : fmt::format("layers {} to {}", chunk.first_layer, chunk.end_layer - 1));
  return out;
}

std::string DescribeRank(const Plan& plan, const RankPlan& rank) {
  std::string place;
  if (plan.Pipeline() > 1)
    place += fmt::format(", stage {} ({})", rank.stage,
                         LayersOf(plan.stages[static_cast<std::size_t>(rank.stage)]));
  if (plan.Pipeline() > 1 && plan.data > 1) place += fmt::format(", replica {}", rank.replica);
  if (plan.tensor > 1) place += fmt::format(", tensor rank {}", rank.tensor_rank);
  const std::string device = rank.device.model.empty() ? rank.device.kind : rank.device.model;
  const std::string threads =
      rank.device.kind == "cpu"
          ? fmt::format(" ({} thread{})", rank.device.threads, Plural(rank.device.threads))
          : fmt::format(" {}", rank.device.index);
  return fmt::format("  rank {} on {}: {}{}{}, {} sequence{} a step in micro-batches of {}\n",
                     rank.rank, rank.device.node, device, threads, place, rank.samples,
                     Plural(rank.samples), rank.micro_batch);
}

std::string Shape(const Plan& plan) {
  std::string out = fmt::format("{} rank{}", plan.ranks.size(), Plural(std::ssize(plan.ranks)));
  if (plan.Pipeline() > 1 || plan.tensor > 1)
    out += fmt::format(" = {} stage{} x {} replica{} x {} tensor rank{}", plan.Pipeline(),
                       Plural(plan.Pipeline()), plan.data, Plural(plan.data), plan.tensor,
                       Plural(plan.tensor));
  if (plan.Chunks() > 1) out += fmt::format(", {} chunks per rank", plan.Chunks());
  if (plan.Pipeline() > 1) out += fmt::format(", {} schedule", ScheduleNameOf(plan));
  if (plan.recompute != Recompute::kNone)
    out +=
        plan.recompute == Recompute::kFull ? ", full recomputation" : ", selective recomputation";
  if (plan.shard > 0) out += fmt::format(", optimizer sharded (ZeRO-{})", plan.shard);
  return out;
}

/// As settings that can be given back; nothing for one stage.
std::string DescribeLayout(const Plan& plan) {
  if (plan.Pipeline() == 1) return "";
  std::string out = fmt::format("  parallel.layout = \"{}\"", LayoutText(plan));
  if (plan.Chunks() > 1) out += fmt::format(", parallel.interleave = {}", plan.Chunks());
  return out + "\n";
}

std::string DescribeParts(const Plan& plan) {
  const StepParts& p = plan.parts;
  std::string out = fmt::format("predicted step {}:\n", Seconds(*plan.step_seconds));
  const std::pair<const char*, double> parts[] = {{"forward and backward", p.compute_s},
                                                  {"bubble", p.bubble_s},
                                                  {"activations, exposed", p.activations_s},
                                                  {"gradients, exposed", p.gradients_s},
                                                  {"optimizer", p.update_s}};
  for (const auto& [name, seconds] : parts)
    out += fmt::format("  {:<22}{:>12}  {:>5.1f} %\n", name, Seconds(seconds),
                       100 * seconds / *plan.step_seconds);
  return out;
}

/// Ranks with the same need and limit share a line.
std::string DescribeMemory(const Plan& plan) {
  std::map<std::tuple<int, std::int64_t, std::int64_t>, std::vector<int>> alike;
  for (const RankPlan& rank : plan.ranks)
    alike[{rank.stage, rank.memory_bytes, rank.device.memory_bytes}].push_back(rank.rank);
  std::string out =
      fmt::format("memory (at most {:.0f} % of a device is used):\n", 100 * kMemoryShare);
  std::size_t shown = 0;
  for (const auto& [key, ranks] : alike) {
    if (++shown > kShown) {
      out += fmt::format("  and {} more kinds, see plan.json\n", alike.size() - kShown);
      break;
    }
    const auto& [stage, needs, has] = key;
    out += fmt::format("  {}: {:.0f} of {:.0f} MiB, {:.0f} %\n",
                       ranks.size() == 1 ? fmt::format("rank {}", ranks[0])
                                         : fmt::format("{} ranks of stage {} ({}, ...)",
                                                       ranks.size(), stage, ranks[0]),
                       static_cast<double>(needs) / kMiB, static_cast<double>(has) / kMiB,
                       100 * static_cast<double>(needs) / static_cast<double>(has));
  }
  return out;
}

/// What limits the step time most.
std::string BindingConstraint(const Plan& plan) {
  double fullest = 0;
  const RankPlan* at = nullptr;
  for (const RankPlan& rank : plan.ranks) {
    const double share =
        static_cast<double>(rank.memory_bytes) / static_cast<double>(rank.device.memory_bytes);
    if (share > fullest) {
      fullest = share;
      at = &rank;
    }
  }
  const StepParts& p = plan.parts;
  const std::pair<double, const char*> largest = std::max(
      {std::pair{p.compute_s, "the devices' speed"},
       std::pair{p.bubble_s, "the pipeline's filling and draining: more micro-batches would help"},
       std::pair{p.activations_s, "links between stages"},
       std::pair{p.gradients_s, "links between replicas"},
       std::pair{p.update_s, "the optimizer's memory traffic"}});
  std::string out = fmt::format("what binds: {}", largest.second);
  if (fullest > 0.8 * kMemoryShare)
    out += fmt::format("; memory of {} is {:.0f} % full", at->device.node, 100 * fullest);
  return out + "\n";
}

std::string DescribeAlternatives(const Plan& plan) {
  std::string out = "rejected:\n";
  for (const Alternative& other : plan.alternatives) {
    out += fmt::format("  {:<24} {}", other.name, other.what);
    if (other.step_seconds)
      out += fmt::format(": {}, {:+.1f} %", Seconds(*other.step_seconds),
                         100 * (*other.step_seconds / *plan.step_seconds - 1));
    out += "\n";
  }
  return plan.alternatives.empty() ? "" : out;
}

}  // namespace

std::string DescribePlan(const Plan& plan, const Cluster& cluster, const ModelShape& model) {
  std::string out = fmt::format(
      "Plan for {} ({} node{}): {:.3f} M parameters, {} sequences of {} tokens a step, {}, {:.0f} "
      "MiB on the fullest rank\n",
      cluster.name, cluster.nodes.size(), Plural(std::ssize(cluster.nodes)),
      static_cast<double>(model.total.parameters) / 1e6, plan.global_batch, model.dims.sequence,
      Shape(plan), static_cast<double>(plan.memory_bytes) / kMiB);
  for (std::size_t i = 0; i < std::min(plan.ranks.size(), kShown); ++i)
    out += DescribeRank(plan, plan.ranks[i]);
  if (plan.ranks.size() > kShown)
    out += fmt::format("  and {} more ranks, see plan.json\n", plan.ranks.size() - kShown);
  out += DescribeLayout(plan);
  for (const std::string& why : plan.why) out += "  - " + why + "\n";
  return out;
}

std::string ExplainPlan(const Plan& plan) {
  if (!plan.step_seconds)
    return DescribeMemory(plan) +
           "step time not predicted: neither layers nor products were measured on these devices\n";
  std::string out = DescribeParts(plan) + DescribeMemory(plan) + BindingConstraint(plan) +
                    DescribeAlternatives(plan);
  if (plan.bound_seconds)
    out += fmt::format(
        "bound: no plan can be predicted to take less than {}; this one is within "
        "{:.1f} % of it\n",
        Seconds(*plan.bound_seconds), 100 * (*plan.step_seconds / *plan.bound_seconds - 1));
  return out;
}

}  // namespace adaptive_train
