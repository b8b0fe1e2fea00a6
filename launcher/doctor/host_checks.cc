#include "launcher/doctor/host_checks.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "core/cpu_quota.h"
#include "core/file_io.h"
#include "launcher/nodes/memory_limits.h"
#include "launcher/nodes/own_cpus.h"

namespace adaptive_train {
namespace {

/// What a launcher takes beside one file for each rank, and room for a few hundred ranks.
constexpr rlim_t kFewestFiles = 1024;
/// A rank of the smallest model takes about as much.
constexpr double kLeastMemory = 512.0 * (1 << 20);

/// With less of a processor, launcher and ranks do not answer in time.
constexpr double kFewestCpus = 0.2;

constexpr double kGiB = 1 << 30;

/// "MemTotal:  8145824 kB" of /proc/meminfo in bytes.
std::optional<double> TotalMemory(const std::string& root) {
  const std::string text = ReadFile(root + "/proc/meminfo", 1 << 16).value_or("");
  const auto digit = text.find_first_of("0123456789", text.find("MemTotal:"));
  if (text.find("MemTotal:") == text.npos || digit == text.npos) return std::nullopt;
  std::int64_t kib = 0;
  std::from_chars(text.data() + digit, text.data() + text.size(), kib);
  return static_cast<double>(kib) * 1024;
}

}  // namespace

Finding CheckOpenFiles(rlim_t most) {
  if (most >= kFewestFiles)
    return {"open files", Severity::kGood,
            most == RLIM_INFINITY ? "no limit" : fmt::format("{} at most", most), "", ""};
  return {
      "open files", Severity::kTrouble, fmt::format("the hard limit is {}", most),
      "a launcher needs one for each rank and about 200 more, a rank two for each other rank",
      "in a job: LimitNOFILE=131072 by `systemctl edit slurmd`; in a login shell: a line `* hard "
      "nofile 131072` in /etc/security/limits.conf"};
}

Finding CheckLockedMemory(rlim_t most, bool has_rdma) {
  if (!has_rdma || most == RLIM_INFINITY)
    return {"locked memory", Severity::kGood,
            most == RLIM_INFINITY ? "no limit" : "limited; no network card here needs it", "", ""};
  return {"locked memory", Severity::kTrouble,
          fmt::format("the hard limit is {} KiB, and there is a card with RDMA", most / 1024),
          "UCX registers memory with the card by locking it, and falls back to TCP or fails",
          "in a job: LimitMEMLOCK=infinity by `systemctl edit slurmd`, and "
          "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"};
}

bool HasRdma(const std::string& root) {
  std::error_code error;
  const std::filesystem::directory_iterator cards(root + "/sys/class/infiniband", error);
  return !error && cards != std::filesystem::directory_iterator();
}

Finding CheckMemoryGroup(const std::string& root) {
  const char* subject = "memory limit";
  const auto limit = ControlGroupLimit(root);
  if (!limit) return {subject, Severity::kGood, "no control group limits memory", "", ""};
  const auto bytes = static_cast<double>(limit->bytes);
  const auto total = TotalMemory(root);
  const std::string what =
      fmt::format("{} leaves {:.3g} GiB{}", limit->by, bytes / kGiB,
                  total ? fmt::format(" of the host's {:.3g} GiB", *total / kGiB) : "");
  if (bytes < kLeastMemory)
    return {subject, Severity::kTrouble, what,
            "ranks are ended by the system when they go beyond it",
            "in a job: a larger --mem; on a login node run in a job instead"};
  return {subject, Severity::kGood, what, "", ""};
}

Finding CheckCpuGroup(const std::string& root) {
  const char* subject = "processors";
  const int threads = FindOwnCpus(root).threads;
  const auto quota = ReadCpuQuota(root);
  const std::string allowed = threads > 0 ? fmt::format("{} hardware threads", threads)
                                          : "an unknown number of hardware threads";
  if (!quota || (threads > 0 && *quota >= threads))
    return {subject, Severity::kGood, allowed + ", no control group limits their time", "", ""};
  return {subject, *quota < kFewestCpus ? Severity::kTrouble : Severity::kNote,
          fmt::format("control groups leave the time of {:.3g} of {}", *quota, allowed),
          "a rank that has used up its time stands still until the next tenth of a second, and all "
          "others wait for it",
          "in a job: a larger --cpus-per-task; in a container or service: a larger CPU limit "
          "(CPUQuota= of systemd)"};
}

Finding CheckClock(int state, const timex& clock) {
  if (state >= 0 && state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0)
    return {"clock", Severity::kGood, "kept by a time service", "", ""};
  return {"clock", Severity::kNote, "no time service keeps it, as far as the kernel knows",
          "munge refuses credentials of hosts whose clocks are minutes apart, and times of jobs do "
          "not compare",
          "systemctl enable --now chronyd (EL) or systemd-timesyncd (Debian)"};
}

}  // namespace adaptive_train
