// What the planner decided: which rank runs where and on how much of each step's batch, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.h"
#include "core/result.h"

namespace adaptive_train {

/// One rank's place and share.
struct RankPlan {
  int rank = 0;
  Device device;                  // device.threads is what this rank uses
  std::int64_t first_sample = 0;  // of the step's global batch
  std::int64_t samples = 0;       // sequences per step, 1 or more
  std::int64_t micro_batch = 1;   // sequences per forward and backward
};

/// A plan is a value: printed, saved as plan.json, read by every rank, stored with the job.
struct Plan {
  std::int64_t global_batch = 0;  // sequences per optimizer step; the ranks' samples add up to it
  std::vector<RankPlan> ranks;    // index = rank
  std::int64_t memory_bytes = 0;  // predicted, of the rank that needs most
  std::optional<double> step_seconds;  // predicted; none where nothing was measured yet
  std::vector<std::string> why;        // one decision a line, in words
};

std::string ToJson(const Plan& plan);
/// Reads plan.json (untrusted). Fails in one line; a plan that comes back is consistent: ranks
/// numbered from 0, samples contiguous and adding up to global_batch.
Result<Plan> PlanFromJson(std::string_view text);

}  // namespace adaptive_train
