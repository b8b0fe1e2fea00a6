#include "spank_plugin/probe/cpu_quota.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "spank_plugin/probe/small_file.h"

namespace adaptive_train::probe {
namespace {

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
  std::string root;  // of the hierarchy, as seen here
  std::string point;
  bool is_v2;
};

/// The mounted hierarchies that can hold CPU limits. A line of mountinfo is
/// "36 35 98:0 ROOT POINT options [tags] - TYPE source OPTIONS"; version 1 names its controllers in
/// OPTIONS.
std::vector<Mount> CpuMounts(const std::string& mountinfo) {
  std::vector<Mount> mounts;
  for (const std::string& line : Split(mountinfo, '\n')) {
    const std::vector<std::string> words = Split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool is_v2 = dash[1] == "cgroup2";
    if (is_v2 || (dash[1] == "cgroup" && Contains(Split(dash[3], ','), "cpu")))
      mounts.push_back({words[3], words[4], is_v2});
  }
  return mounts;
}

/// This process's group in the hierarchy of `mount`, relative to its mount point: "" or "/a/b". A
/// line of /proc/self/cgroup is "4:cpu,cpuacct:/a/b" or, for version 2, "0::/a/b".
std::optional<std::string> GroupIn(const Mount& mount, const std::string& groups) {
  for (const std::string& line : Split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (mount.is_v2 ? !controllers.empty() : !Contains(Split(controllers, ','), "cpu")) continue;
    std::string group = line.substr(second + 1);
    if (mount.root != "/" && group.starts_with(mount.root)) group.erase(0, mount.root.size());
    return group == "/" ? "" : group;
  }
  return std::nullopt;
}

std::optional<double> QuotaOf(const std::string& folder, bool is_v2) {
  double quota = 0;
  double period = 0;
  if (is_v2) {
    // "max 100000" or "50000 100000"
    const std::string text = ReadSmallFile(folder + "/cpu.max").value_or("max");
    char* rest = nullptr;
    quota = std::strtod(text.c_str(), &rest);
    period = std::strtod(rest, nullptr);
  } else {
    quota = static_cast<double>(ReadNumber(folder + "/cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(ReadNumber(folder + "/cpu.cfs_period_us").value_or(0));
  }
  if (!(quota > 0 && period > 0)) return std::nullopt;
  return quota / period;
}

}  // namespace

std::optional<double> ReadCpuQuota(const std::string& root) {
  const std::string groups = ReadSmallFile(root + "/proc/self/cgroup").value_or("");
  std::optional<double> tightest;
  for (const Mount& mount : CpuMounts(ReadSmallFile(root + "/proc/self/mountinfo").value_or(""))) {
    std::optional<std::string> group = GroupIn(mount, groups);
    if (!group || group->find("..") != std::string::npos)
      group = "";  // outside of what is mounted here
    for (;;) {
      const auto quota = QuotaOf(root + mount.point + *group, mount.is_v2);
      if (quota && (!tightest || *quota < *tightest)) tightest = quota;
      if (group->empty()) break;
      group->erase(group->rfind('/'));
    }
  }
  return tightest;
}

}  // namespace adaptive_train::probe
