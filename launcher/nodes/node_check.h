// What the launcher must know of every node before the first step: its snapshot, and whether it
// sees the shared paths.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.h"
#include "core/config.h"
#include "core/result.h"
#include "launcher/nodes/allocation.h"

namespace adaptive_train {

/// What is to be looked at.
struct NodeCheckRequest {
  std::int64_t job_id = 0;  // 0: no snapshot of a prolog can exist
  bool prolog_expected =
      false;            // the option is on: wait a moment for a prolog that is not done yet
  std::string run_dir;  // must hold a file with the text `token` and writable logs; empty: no check
  std::string token;
  std::vector<std::string> readable;  // data files
  LaunchConfig launch = {};           // how long the short step may take
};

/// One node's answer. `trouble` is empty or one line for each check that failed.
struct NodeCheck {
  Node node;         // with the control group's limit on its memory
  int job_gpus = 0;  // that the job has on this node, as Slurm says
  std::string note;  // how the snapshot came about, if not from the prolog
  std::vector<std::string> trouble;
};

/// Checks this node. Takes the prolog's snapshot, or runs `probe` as the user where there is none,
/// and says so. A prolog runs outside of the job's control group: its limit is read here, from files
/// below `root`.
NodeCheck CheckThisNode(const NodeCheckRequest& request, const std::string& probe,
                        const std::string& root = "");

/// JSON in short lines: srun cuts long ones of several nodes into each other.
std::string ToJson(const NodeCheck& check);
Result<NodeCheck> NodeCheckFromJson(std::string_view text);

/// Runs the probe program to its end as the calling user and reads its last complete document.
Result<Node> RunProbe(const std::string& probe);

/// Checks every node of the allocation in one short step (`self` is the adaptive-train program), in
/// the order of the allocation. Writes and removes the token file. Fails with kPreflight and every
/// node's trouble.
Result<std::vector<NodeCheck>> CheckAllNodes(const Allocation& allocation, NodeCheckRequest request,
                                             const std::string& self, const std::string& probe);

}  // namespace adaptive_train
