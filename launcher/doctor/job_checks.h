// What doctor looks at from every node of a job: whether they reach this one, and are alike.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "launcher/doctor/finding.h"
#include "launcher/nodes/allocation.h"

namespace adaptive_train {

/// Whether each node of the job connects to a port of this host, as its ranks will to their
/// launcher: one of launch.ports, at an address of launch.interface. And whether each connects to
/// that port of all others, of many nodes to the next 64. Blocks for three short steps.
Finding CheckPorts(const LaunchConfig& launch, const Allocation& allocation);

/// Whether all nodes of the job have the same NVIDIA driver and NCCL. Blocks for a short step.
Finding CheckGpuVersions(const LaunchConfig& launch, const Allocation& allocation);

/// Whether the clocks of all nodes of the job say the same time. Blocks for a short step.
Finding CheckClocks(const LaunchConfig& launch, const Allocation& allocation);

// How the lines of such a step are understood, "TASK: WORDS" in any order:
/// The hosts whose words are not "reached", in order.
std::vector<std::string> HostsThatMissed(const std::string& lines,
                                         const std::vector<std::string>& hosts);
/// "n1 to n3", where n1 has said "missed 2"; "n2: WORDS" for other words than these and "reached".
std::vector<std::string> PairsThatMissed(const std::string& lines,
                                         const std::vector<std::string>& hosts);
/// From each one's seconds since 1970, which all were asked for within `asked_s`.
Finding ClocksAlike(const std::string& lines, const std::vector<std::string>& hosts,
                    double asked_s);
/// From "DRIVER NCCL" of each, where "-" is none.
Finding GpuVersionsAlike(const std::string& lines, const std::vector<std::string>& hosts);

}  // namespace adaptive_train
