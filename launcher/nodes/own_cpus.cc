#include "launcher/nodes/own_cpus.h"

#include <fmt/format.h>

#include <charconv>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostStatus = std::size_t{64} << 10;
constexpr int kMostCpus = 65536;

/// The kernel's "0-2,4".
std::vector<int> CpusIn(const std::string& list) {
  std::vector<int> cpus;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0;
    const char* end = range.data() + range.size();
    const auto [dash, error] = std::from_chars(range.data(), end, first);
    if (error != std::errc() || first < 0) continue;
    int last = first;
    if (dash != end) std::from_chars(dash + 1, end, last);
    for (int cpu = first; cpu <= last && cpu < kMostCpus; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string AllowedList(const std::string& root) {
  constexpr std::string_view kEntry = "\nCpus_allowed_list:\t";
  const std::string status = ReadFile(root + "/proc/self/status", kMostStatus).value_or("");
  const std::size_t place = status.find(kEntry);
  if (place == std::string::npos) return "";
  const std::size_t begin = place + kEntry.size();
  return status.substr(begin, status.find('\n', begin) - begin);
}

}  // namespace

OwnCpus FindOwnCpus(const std::string& root) {
  OwnCpus own;
  std::set<std::string> cores;
  for (const int cpu : CpusIn(AllowedList(root))) {
    const std::string file =
        fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu);
    cores.insert(ReadFile(file, 4096).value_or(fmt::format("{}\n", cpu)));
    ++own.threads;
  }
  own.cores = static_cast<int>(cores.size());
  return own;
}

}  // namespace adaptive_train
