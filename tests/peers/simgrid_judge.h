// The same steps as the simulator plays, played by SimGrid (Casanova et al. 2014): other code,
// other schedule, other platform; only the meaning of a layout is shared.
#pragma once

#include <vector>

#include "core/result.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// Capacities of the nodes' cards, bytes per second; index = node.
struct JudgeCards {
  std::vector<double> egress, ingress;
};

/// One message over the links of a problem's table.
struct JudgeMessage {
  int from = 0, to = 0;  // nodes
  double bytes = 0;
  double at = 0;  // seconds, when it is sent
};

/// Seconds of one step of a layout with one tensor rank, without compression, sharding and tied
/// embeddings. SimGrid runs in a child process, since a process can hold only one simulation;
/// fails with what the child said.
Result<double> StepBySimGrid(const PlanProblem& problem, const Layout& layout,
                             const JudgeCards& cards, double bucket_bytes);

/// When the messages arrive, seconds, on average.
Result<double> MessagesBySimGrid(const LinkTable& links, const JudgeCards& cards,
                                 const std::vector<JudgeMessage>& messages);

}  // namespace adaptive_train
