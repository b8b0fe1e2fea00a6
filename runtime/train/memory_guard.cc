#include "runtime/train/memory_guard.h"

#include <fmt/format.h>

#include <cerrno>

#include <algorithm>

namespace adaptive_train {
namespace {

constexpr double kMiB = 1 << 20;

bool OnHost(const RankPlan& rank) { return rank.device.kind == "cpu"; }

std::int64_t StillNeeded(const RankPlan& rank, std::int64_t resident) {
  return std::max<std::int64_t>(0, rank.memory_bytes - resident);
}

}  // namespace

std::string StageInWords(const Plan& plan, int rank) {
  const int number = plan.ranks[static_cast<std::size_t>(rank)].stage;
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(number)];
  std::string layers;
  for (const StageLayers& chunk : stage.chunks)
    layers += fmt::format("{}{} to {}", layers.empty() ? "" : ", ", chunk.first_layer,
                          chunk.end_layer - 1);
  return fmt::format("stage {} (layers {})", number, layers);
}

Result<void> CheckMemory(const Plan& plan, int rank, std::int64_t resident,
                         const std::optional<MemoryLimit>& free_on_node,
                         const std::optional<MemoryLimit>& free_in_process) {
  const RankPlan& own = plan.ranks[static_cast<std::size_t>(rank)];
  if (!OnHost(own)) return {};
  const std::int64_t needed = StillNeeded(own, resident);
  if (free_in_process && needed > free_in_process->bytes)
    return Fail(fmt::format("{} needs {:.0f} MiB, {:.0f} MiB are free for its rank ({}): {}",
                            StageInWords(plan, rank), static_cast<double>(needed) / kMiB,
                            static_cast<double>(free_in_process->bytes) / kMiB, free_in_process->by,
                            kMemoryAdvice),
                ExitCode::kRankFailure, ENOMEM);
  std::int64_t together = 0, ranks = 0;
  for (const RankPlan& other : plan.ranks) {
    if (!OnHost(other) || other.device.node != own.device.node) continue;
    together += StillNeeded(other, resident);
    ++ranks;
  }
  if (!free_on_node || together <= free_on_node->bytes) return {};
  return Fail(
      fmt::format("{} needs {:.0f} MiB, and all {} ranks on {} {:.0f} MiB; {:.0f} MiB are "
                  "free there ({}): {}",
                  StageInWords(plan, rank), static_cast<double>(needed) / kMiB, ranks,
                  own.device.node, static_cast<double>(together) / kMiB,
                  static_cast<double>(free_on_node->bytes) / kMiB, free_on_node->by, kMemoryAdvice),
      ExitCode::kRankFailure, ENOMEM);
}

Result<void> CheckDeviceMemory(const Plan& plan, int rank, std::int64_t free) {
  const RankPlan& own = plan.ranks[static_cast<std::size_t>(rank)];
  if (own.memory_bytes <= free) return {};
  return Fail(fmt::format("{} needs {:.0f} MiB, {:.0f} MiB of {:.0f} are free on {} ({}): {}",
                          StageInWords(plan, rank), static_cast<double>(own.memory_bytes) / kMiB,
                          static_cast<double>(free) / kMiB,
                          static_cast<double>(own.device.memory_bytes) / kMiB, own.device.model,
                          own.device.uuid, kMemoryAdvice),
              ExitCode::kRankFailure, ENOMEM);
}

}  // namespace adaptive_train
