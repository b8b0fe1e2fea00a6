// What the planner decided: which rank runs which layers where, on how much of each step's batch,
// and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.h"
#include "core/model_shape.h"
#include "core/orders.h"
#include "core/result.h"
#include "core/schedule/compute_order.h"
#include "core/schedule/stage_layout.h"
#include "core/unit_tree.h"

namespace adaptive_train {

/// One rank's place and share.
struct RankPlan {
  int rank = 0;
  Device device;  // device.threads is what this rank uses
  /// Above the device's node, from the top down, as Node::switches; empty: unknown.
  std::vector<std::string> switches = {};
  int stage = 0;                  // of the pipeline
  int replica = 0;                // data parallel
  int tensor_rank = 0;            // among the ranks that share the stage's layers
  std::int64_t first_sample = 0;  // of the step's global batch
  std::int64_t samples = 0;       // sequences per step of its replica, 1 or more
  std::int64_t micro_batch = 1;   // sequences per forward and backward
  std::int64_t memory_bytes = 0;  // predicted
};

/// The rank's units, of shares that are whole micro-batches.
inline UnitRange UnitsOf(const RankPlan& rank) {
  return {rank.first_sample / rank.micro_batch,
          (rank.first_sample + rank.samples) / rank.micro_batch};
}

/// How the replicas of a stage sum what is neither compressed nor sharded, by its size.
struct AllReducePlan {
  std::int64_t doubling_bytes = 16384;  // up to so many by recursive doubling
  std::int64_t halving_bytes = 0;       // others, up to so many, by recursive halving
  bool node_first = false;              // the rest inside nodes first; false: around one ring
};

/// What the ranks of one place in the pipeline have of the model.
struct StagePlan {
  /// One chunk, or with interleaving as many as every other stage has. All stages' first chunks are
  /// followed by all stages' second ones, and so on.
  std::vector<StageLayers> chunks;
  std::vector<int> ring;  // replicas in the order in which they exchange gradients
  std::vector<int>
      compressed_layers;  // whose gradients go compressed, if the configuration lets them
  AllReducePlan all_reduce;
};

/// Where a predicted step goes, in seconds; the parts add up to the step. docs/planning.md says how
/// each is computed.
struct StepParts {
  double compute_s = 0;
  double bubble_s = 0;
  double activations_s = 0;
  double gradients_s = 0;
  double update_s = 0;
};

/// A plan that was not taken.
struct Alternative {
  std::string name;                    // "data parallel only"
  std::string what;                    // "8 replicas", or why it cannot be
  std::optional<double> step_seconds;  // none: not possible
};

/// A plan is a value: printed, saved as plan.json, read by every rank, stored with the job. Ranks
/// are in the order of (stage, replica, tensor rank).
struct Plan {
  std::int64_t global_batch =
      0;         // sequences per optimizer step; the replicas' samples add up to it
  int data = 1;  // replicas
  int tensor = 1;
  Recompute recompute = Recompute::kNone;
  int shard = 0;  // ZeRO: 0 nothing, 1 moments, 2 moments and gradients
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  /// A list schedule instead (MakeListSchedule): forwards and backwards of each replica as CSV.
  std::vector<std::string> listed;
  ExchangeOrders orders;
  std::vector<StagePlan> stages;
  std::vector<RankPlan> ranks;          // index = rank
  std::int64_t memory_bytes = 0;        // predicted, of the rank that needs most
  std::optional<double> step_seconds;   // predicted; none where nothing was measured yet
  std::optional<double> bound_seconds;  // no plan can be predicted to take less
  StepParts parts;                      // of step_seconds
  std::vector<Alternative> alternatives;
  std::vector<std::string> why;  // one decision a line, in words

  int Pipeline() const { return static_cast<int>(stages.size()); }
  /// Per rank.
  int Chunks() const { return static_cast<int>(stages.front().chunks.size()); }
};

/// The name of a kind, or "list".
std::string ScheduleNameOf(const Plan& plan);
/// The micro-batches of a step on each rank of the replica.
int MicroBatchesOf(const Plan& plan, int replica);
/// All replicas have one state again after so many steps at most: 1, or a round of local steps.
std::int64_t RoundOf(const Plan& plan);

/// The order in which the stages of a replica compute: the value that runs, and that `plan
/// --simulate` plays. Its stages are the plan's chunks: stage s of the schedule is chunk
/// s / Pipeline() of the plan's stage s mod Pipeline(). The plan must be consistent. More than one
/// step is for schedules without a flush.
Schedule OrderOf(const Plan& plan, int replica, int steps = 1);

/// Which stage has which layers, as one line of text that parallel.layout takes; a plan with several
/// chunks needs parallel.interleave besides. Empty for a plan that is not consistent, or without
/// both an embedding and a head.
std::string LayoutText(const Plan& plan);

std::string ToJson(const Plan& plan);
/// Reads plan.json (untrusted). Fails in one line; a plan that comes back is consistent: ranks
/// numbered from 0 in their order, the replicas' samples contiguous and adding up to global_batch,
/// stages contiguous from layer 0.
Result<Plan> PlanFromJson(std::string_view text);

/// Whom one rank shares something with: ranks, ascending, itself among them.
struct GroupMembers {
  std::vector<int> data;            // the same part of the same layers, other samples
  std::vector<int> tensor;          // the other parts of the same layers
  std::vector<int> pipeline;        // the other stages of the same samples
  std::vector<int> embedding_head;  // first and last stage of those, which may share a matrix
};
GroupMembers GroupsOf(const Plan& plan, int rank);

/// Members of a group by the nodes they are on, as numbers within the group; nodes in the order of
/// their first member.
std::vector<std::vector<int>> MembersByNode(const Plan& plan, const std::vector<int>& members);
/// The same where sums can begin inside nodes: there are two or more and each has as many members.
/// Otherwise empty.
std::vector<std::vector<int>> EvenMembersByNode(const Plan& plan, const std::vector<int>& members);

}  // namespace adaptive_train
