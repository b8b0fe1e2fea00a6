#include "core/cpu_quota.h"

#include <cstdlib>

#include "core/control_groups.h"
#include "core/file_io.h"

namespace adaptive_train {
namespace {

/// What the file begins with; 0: it is not there, or begins otherwise.
double NumberIn(const std::string& file) {
  return std::strtod(ReadFile(file, 4096).value_or("").c_str(), nullptr);
}

std::optional<double> QuotaOf(const std::string& folder, bool is_v2) {
  double quota = 0;
  double period = 0;
  if (is_v2) {
    // "max 100000" or "50000 100000"
    const std::string text = ReadFile(folder + "/cpu.max", 4096).value_or("max");
    char* rest = nullptr;
    quota = std::strtod(text.c_str(), &rest);
    period = std::strtod(rest, nullptr);
  } else {
    quota = NumberIn(folder + "/cpu.cfs_quota_us");
    period = NumberIn(folder + "/cpu.cfs_period_us");
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

}  // namespace adaptive_train
