// The control groups that this process is in, version 1 and 2.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace adaptive_train {

/// One group of a hierarchy in which a controller's limits can stand.
struct ControlGroup {
  std::string folder;  // with the group's files, ROOT before it
  std::string name;    // below the mount: "/", "/slurm/job_7"
  bool is_v2 = false;
};

/// This process's group and all above it that can be seen, from the inside out, in every mounted
/// hierarchy that can hold limits of `controller` ("cpu", "memory"), by what
/// ROOT/proc/self/{cgroup,mountinfo} say. Empty: no control groups.
std::vector<ControlGroup> ControlGroupsOf(std::string_view controller,
                                          const std::string& root = "");

}  // namespace adaptive_train
