#include "core/free_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>

#include "core/control_groups.h"
#include "core/file_io.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostText = std::size_t{64} << 10;
/// More than any node has: kernels write larger numbers for "no limit".
constexpr std::int64_t kNoLimit = std::int64_t{1} << 50;

std::optional<std::int64_t> NumberAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= kNoLimit) return std::nullopt;
  return number;
}

/// The number after `name` at the beginning of a line.
std::optional<std::int64_t> Entry(const std::string& path, const std::string& name) {
  const std::string text = "\n" + ReadFile(path, kMostText).value_or("");
  const std::size_t place = text.find("\n" + name);
  if (place == std::string::npos) return std::nullopt;
  return NumberAt(std::string_view(text).substr(place + 1 + name.size()));
}

std::optional<std::int64_t> FileNumber(const std::string& path) { return Entry(path, ""); }

/// What a group's limit leaves; none without a limit.
std::optional<std::int64_t> FreeIn(const ControlGroup& group) {
  const std::string at = group.folder + "/memory.";
  const auto limit = FileNumber(at + (group.is_v2 ? "max" : "limit_in_bytes"));
  const auto used = FileNumber(at + (group.is_v2 ? "current" : "usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  const std::string total = group.is_v2 ? "" : "total_";
  const std::int64_t cached = Entry(at + "stat", total + "inactive_file ").value_or(0) +
                              Entry(at + "stat", total + "active_file ").value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - cached));
}

void Reduce(std::optional<MemoryLimit>& least, std::int64_t bytes, const std::string& by) {
  if (!least || bytes < least->bytes) least = {bytes, by};
}

}  // namespace

std::optional<MemoryLimit> FreeMemory(const std::string& root) {
  std::optional<MemoryLimit> least;
  if (const auto available = Entry(root + "/proc/meminfo", "MemAvailable:"))
    Reduce(least, 1024 * *available, "the node's free memory");
  for (const ControlGroup& group : ControlGroupsOf("memory", root))
    if (const auto free = FreeIn(group))
      Reduce(least, *free, "control group " + Printable(group.name, 120));
  return least;
}

std::optional<MemoryLimit> FreeInProcess() {
  std::optional<MemoryLimit> least;
  const auto reduce = [&least](auto resource, const char* entry, const char* by) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const std::int64_t used = 1024 * Entry("/proc/self/status", entry).value_or(0);
    Reduce(least, std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - used), by);
  };
  reduce(RLIMIT_DATA, "VmData:", "the process's limit, ulimit -d");
  reduce(RLIMIT_AS, "VmSize:", "the process's limit, ulimit -v");
  return least;
}

std::int64_t KilledForMemory(const std::string& root) {
  std::int64_t killed = 0;
  bool innermost = true;
  for (const ControlGroup& group : ControlGroupsOf("memory", root)) {
    const char* file = group.is_v2 ? "/memory.events" : "/memory.oom_control";
    if (innermost) killed += Entry(group.folder + file, "oom_kill ").value_or(0);
    innermost = group.name == "/";  // the next one is of another hierarchy
  }
  return killed;
}

std::int64_t ResidentBytes() { return 1024 * Entry("/proc/self/status", "VmRSS:").value_or(0); }

}  // namespace adaptive_train
