// Checks every node before the first step: its snapshot, and access to the shared paths.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.h"
#include "core/config.h"
#include "core/result.h"
#include "launcher/nodes/allocation.h"

namespace adaptive_train {

/// What to check.
struct NodeCheckRequest {
  std::int64_t job_id = 0;  // 0: there cannot be a snapshot from a prolog
  bool prolog_expected =
      false;            // the option is on: wait a moment for a prolog that is still running
  std::string run_dir;  // must hold a file with the text `token` and writable logs; empty: no check
  std::string token;
  std::vector<std::string> readable;  // data files
  LaunchConfig launch = {};           // how long the short step may take
};

/// One node's answer. `trouble` is empty or one line for each check that failed.
struct NodeCheck {
  Node node;         // with the control groups' limits, and the job's GPUs alone
  int job_gpus = 0;  // the job's GPUs on this node, according to Slurm
  std::string note;  // the origin of the snapshot, if not the prolog
  std::vector<std::string> trouble;
};

/// Checks this node. Uses the prolog's snapshot, or else runs `probe` as the user and says so. A
/// prolog runs outside the job's control groups: their limits on memory and processors are read
/// here, from files below `root`.
NodeCheck CheckThisNode(const NodeCheckRequest& request, const std::string& probe,
                        const std::string& root = "");

/// JSON in short lines: srun mixes long ones of several nodes.
std::string ToJson(const NodeCheck& check);
Result<NodeCheck> NodeCheckFromJson(std::string_view text);

/// Runs the probe as the calling user and reads its last complete document.
Result<Node> RunProbe(const std::string& probe);

/// Checks every node of the allocation in one short step, and returns the answers in its order.
/// `self` is the adaptive-train program. Writes and removes the token file. Fails with kPreflight
/// and every node's trouble.
Result<std::vector<NodeCheck>> CheckAllNodes(const Allocation& allocation, NodeCheckRequest request,
                                             const std::string& self, const std::string& probe);

}  // namespace adaptive_train
