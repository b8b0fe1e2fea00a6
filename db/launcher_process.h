// Which process launched a job, precisely enough to tell later whether it still lives.
#pragma once

#include <cstdint>
#include <string>

namespace adaptive_train {

/// A process, told apart from any later one that gets the same number.
struct LauncherProcess {
  std::string host;           // nodename, as uname gives it
  std::string boot_id;        // of the running kernel; changes with each boot
  std::string pid_namespace;  // "pid:[4026531836]"; numbers of another namespace mean nothing here
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;  // clock ticks from boot to the start of the process

  bool operator==(const LauncherProcess&) const = default;
};

/// The calling process. Reads /proc; what cannot be read there stays empty or 0.
LauncherProcess ThisProcess();

/// The login name of the effective user, or its number where it has no name: whose jobs are "mine".
std::string CallingUser();

/// True where `process` surely has ended: it ran on this host, and this host was booted again, or
/// the process numbered so is gone or another one. False where that cannot be known from here
/// (another host, another process namespace). Reads /proc, does not block.
bool IsGone(const LauncherProcess& process);

}  // namespace adaptive_train
