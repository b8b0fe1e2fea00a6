// Identifies the process that launched a job, precisely enough to tell later whether it lives.
#include "db/launcher_process.h"

#include <pwd.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

namespace adaptive_train {
namespace {

std::string HostName() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "";
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

std::string PidNamespace() {
  std::array<char, 64> target{};
  const ssize_t length = readlink("/proc/self/ns/pid", target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : "";
}

/// State letter and start time from /proc/PID/stat; none if the process cannot be seen.
struct ProcessStat {
  char state = '?';
  std::int64_t start_ticks = 0;
};

std::optional<ProcessStat> ReadStat(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  // The second field is the program's name in parentheses, which may contain anything. Parsing
  // continues behind the last ')'.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStat stat;
  fields >> stat.state;
  constexpr int kStateField = 3, kStartTimeField = 22;
  for (int field = kStateField + 1; field <= kStartTimeField; ++field) fields >> stat.start_ticks;
  return fields ? std::optional(stat) : std::nullopt;
}

/// Whether what has the process's number is that process, and no zombie.
bool IsThat(const LauncherProcess& process, const ProcessStat& stat) {
  return stat.state != 'Z' && stat.state != 'X' && stat.start_ticks == process.start_ticks;
}

}  // namespace

LauncherProcess ThisProcess() {
  LauncherProcess process;
  process.host = HostName();
  process.boot_id = BootId();
  process.pid_namespace = PidNamespace();
  process.pid = getpid();
  if (const auto stat = ReadStat(process.pid)) process.start_ticks = stat->start_ticks;
  return process;
}

std::string NameOfUser(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16384> buffer{};
  const int failed = getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return failed != 0 || found == nullptr ? std::to_string(uid) : found->pw_name;
}

std::string CallingUser() { return NameOfUser(geteuid()); }

bool IsGone(const LauncherProcess& process) {
  if (process.pid <= 0 || process.host.empty() || process.host != HostName()) return false;
  const std::string boot_id = BootId();
  if (process.boot_id.empty() || boot_id.empty()) return false;
  if (process.boot_id != boot_id) return true;
  if (process.pid_namespace != PidNamespace()) return false;
  const auto stat = ReadStat(process.pid);
  if (!stat) {
    // /proc may be missing or hide other users' processes (hidepid), so only ESRCH counts.
    return kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH;
  }
  return !IsThat(process, *stat);
}

bool IsAlive(const LauncherProcess& process) {
  if (process.pid <= 0 || process.host != HostName() || process.boot_id != BootId() ||
      process.pid_namespace != PidNamespace())
    return false;
  const auto stat = ReadStat(process.pid);
  return stat && IsThat(process, *stat);
}

}  // namespace adaptive_train
