#include "spank_plugin/probe/cpu_quota.h"

#include <cstdlib>

#include "core/control_groups.h"
#include "spank_plugin/probe/small_file.h"

namespace adaptive_train::probe {
namespace {

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
  std::optional<double> tightest;
  for (const ControlGroup& group : ControlGroupsOf("cpu", root)) {
    const auto quota = QuotaOf(group.folder, group.is_v2);
    if (quota && (!tightest || *quota < *tightest)) tightest = quota;
  }
  return tightest;
}

}  // namespace adaptive_train::probe
