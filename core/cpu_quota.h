// The processor time that this process's control groups allow.
#pragma once

#include <optional>
#include <string>

namespace adaptive_train {

/// The tightest CPU-bandwidth limit, in CPUs, from this process's control group up to the highest
/// visible one. Covers version 1 and 2, according to ROOT/proc/self/{cgroup,mountinfo}. None: no
/// limit, or no control groups.
std::optional<double> ReadCpuQuota(const std::string& root = "");

}  // namespace adaptive_train
