#include "core/control_groups.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool Contains(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

struct Mount {
  std::string root;  // of the hierarchy, as visible here
  std::string point;
  bool is_v2;
};

/// The mounted hierarchies that may hold limits of the controller. A line of mountinfo is "36 35
/// 98:0 ROOT POINT options [tags] - TYPE source OPTIONS"; version 1 names its controllers in
/// OPTIONS.
std::vector<Mount> MountsOf(std::string_view controller, const std::string& mountinfo) {
  std::vector<Mount> mounts;
  for (const std::string& line : Split(mountinfo, '\n')) {
    const std::vector<std::string> words = Split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool is_v2 = dash[1] == "cgroup2";
    if (is_v2 || (dash[1] == "cgroup" && Contains(Split(dash[3], ','), controller)))
      mounts.push_back({words[3], words[4], is_v2});
  }
  return mounts;
}

/// This process's group in the hierarchy of `mount`, relative to its mount point: "" or "/a/b". A
/// line of /proc/self/cgroup is "4:cpu,cpuacct:/a/b" or, for version 2, "0::/a/b".
std::optional<std::string> GroupIn(const Mount& mount, std::string_view controller,
                                   const std::string& groups) {
  for (const std::string& line : Split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (mount.is_v2 ? !controllers.empty() : !Contains(Split(controllers, ','), controller))
      continue;
    std::string group = line.substr(second + 1);
    if (mount.root != "/" && group.starts_with(mount.root)) group.erase(0, mount.root.size());
    return group == "/" ? "" : group;
  }
  return std::nullopt;
}

}  // namespace

std::vector<ControlGroup> ControlGroupsOf(std::string_view controller, const std::string& root) {
  const auto text = [&root](const char* path) {
    return ReadFile(root + path, kMostBytes).value_or("");
  };
  const std::string groups = text("/proc/self/cgroup");
  std::vector<ControlGroup> found;
  for (const Mount& mount : MountsOf(controller, text("/proc/self/mountinfo"))) {
    std::optional<std::string> group = GroupIn(mount, controller, groups);
    if (!group || group->find("..") != std::string::npos) group = "";  // outside the mounted part
    for (;;) {
      found.push_back({root + mount.point + *group, group->empty() ? "/" : *group, mount.is_v2});
      if (group->empty()) break;
      group->erase(group->rfind('/'));
    }
  }
  return found;
}

}  // namespace adaptive_train
