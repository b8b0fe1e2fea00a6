#include "core/runnable_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/limits.h"
#include "core/schedule/check.h"

namespace adaptive_train {
namespace {

/// Why a plan cannot keep its bits in any layout; empty if it can.
std::string NotReproducible(const Plan& plan) {
  if (plan.orders.compression.mode != CompressionMode::kOff)
    return fmt::format(
        "compressed gradients (compression.mode = {}) with train.reproducible = layout",
        NameOf(plan.orders.compression.mode));
  if (plan.schedule == ScheduleKind::kPipeDream2Bw)
    return "the pipedream-2bw schedule (parallel.schedule) with train.reproducible";
  if (kTensorGroups % plan.tensor != 0)
    return fmt::format(
        "{} tensor ranks (parallel.tensor) with the bits of any layout (train.reproducible): 1, 2, "
        "4 or 8 have them",
        plan.tensor);
  const std::int64_t unit = plan.ranks.front().micro_batch;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.micro_batch == unit && rank.samples % unit == 0) continue;
    return fmt::format(
        "rank {}'s {} samples in micro-batches of {} with train.reproducible = layout, which needs "
        "whole micro-batches of {} on all ranks",
        rank.rank, rank.samples, rank.micro_batch, unit);
  }
  return "";
}

/// Each rank has the whole model, one version of it, and all of its moments.
bool HasWholeReplicas(const Plan& plan) {
  return plan.Pipeline() == 1 && plan.tensor == 1 && plan.shard == 0 &&
         WeightVersionsOf(plan.schedule) == 1;
}

}  // namespace

std::string TooFewMicroBatches(const Plan& plan) {
  if (WeightVersionsOf(plan.schedule) == 1) return "";
  for (int replica = 0; replica < plan.data; ++replica) {
    const int micro_batches = MicroBatchesOf(plan, replica);
    if (micro_batches >= plan.Pipeline()) continue;
    return fmt::format(
        "{} micro-batches of replica {} on {} stages with the {} schedule (parallel.schedule), "
        "which needs at least as many as stages",
        micro_batches, replica, plan.Pipeline(), ScheduleNameOf(plan));
  }
  return "";
}

std::string NotRunnable(const Plan& plan) {
  if (plan.ranks.size() > kMostRanks)
    return fmt::format("{} ranks (at most {})", plan.ranks.size(), kMostRanks);
  const bool gpus = std::any_of(plan.ranks.begin(), plan.ranks.end(),
                                [](const RankPlan& rank) { return rank.device.kind == "cuda"; });
  if (gpus && plan.orders.AnyLayout()) return "the bits of any layout (train.reproducible) on GPUs";
  if (std::string why = TooFewMicroBatches(plan); !why.empty()) return why;
  if (plan.orders.AnyLayout())
    if (std::string why = NotReproducible(plan); !why.empty()) return why;
  if (plan.orders.compression.mode == CompressionMode::kLocal && !HasWholeReplicas(plan))
    return "stages, tensor ranks, shards or older weights (parallel) with compression.mode = local";
  // A sketch rounds by the largest element of its bucket, and tensor ranks have unlike buckets: what
  // they all have would differ.
  if (plan.tensor > 1 && plan.orders.compression.mode == CompressionMode::kSketch)
    return fmt::format(
        "sketches of gradients (compression.mode) of {} tensor ranks (parallel.tensor)",
        plan.tensor);
  return "";
}

}  // namespace adaptive_train
