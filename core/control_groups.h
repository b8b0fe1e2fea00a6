// The control groups of this process, version 1 and 2.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace adaptive_train {

/// One group of a hierarchy, where limits of a controller may be set.
struct ControlGroup {
  std::string folder;  // the group's folder, including ROOT
  std::string name;    // below the mount: "/", "/slurm/job_7"
  bool is_v2 = false;
};

/// This process's group and all visible groups above it, innermost first. Covers every mounted
/// hierarchy that may hold limits of `controller` ("cpu", "memory"), according to
/// ROOT/proc/self/{cgroup,mountinfo}. Empty: no control groups.
std::vector<ControlGroup> ControlGroupsOf(std::string_view controller,
                                          const std::string& root = "");

}  // namespace adaptive_train
