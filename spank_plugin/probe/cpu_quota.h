// How much processor time this process's control groups grant.
#pragma once

#include <optional>
#include <string>

namespace adaptive_train::probe {

/// The tightest CPU-bandwidth limit, in CPUs, from this process's control group up to the top that
/// it can see; version 1 and 2, by what ROOT/proc/self/{cgroup,mountinfo} say. None: no limit, or
/// no control groups.
std::optional<double> ReadCpuQuota(const std::string& root = "");

}  // namespace adaptive_train::probe
