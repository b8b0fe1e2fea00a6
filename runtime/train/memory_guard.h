// Whether what a plan predicts that ranks need is there, before any of it is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/cluster.h"
#include "core/plan.h"
#include "core/result.h"

namespace adaptive_train {

/// "stage 1 (layers 3 to 5)".
std::string StageInWords(const Plan& plan, int rank);

/// What to do where memory lacks.
inline constexpr const char* kMemoryAdvice =
    "free memory there, take more nodes or pipeline stages, a smaller train.micro_batch, "
    "train.recompute = \"full\", parallel.shard = 2 or recovery.memory = \"off\"";

/// Fails in one line where the plan's peak of the rank is more than its process may still take, or
/// that of all ranks on its node more than is free there. `resident` bytes of each are there
/// already. Without limits nothing is known, and nothing fails. Devices with memory of their own are
/// not looked at.
Result<void> CheckMemory(const Plan& plan, int rank, std::int64_t resident,
                         const std::optional<MemoryLimit>& free_on_node,
                         const std::optional<MemoryLimit>& free_in_process);

/// The same for a rank whose device has memory of its own, of which `free` bytes are nobody's.
Result<void> CheckDeviceMemory(const Plan& plan, int rank, std::int64_t free);

}  // namespace adaptive_train
