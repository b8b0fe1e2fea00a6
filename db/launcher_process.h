// Identifies the process that launched a job, precisely enough to tell later whether it lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace adaptive_train {

/// A process, distinguishable from a later one with the same number.
struct LauncherProcess {
  std::string host;           // nodename as returned by uname
  std::string boot_id;        // of the running kernel; changes with each boot
  std::string pid_namespace;  // "pid:[4026531836]"; process ids mean nothing in another namespace
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;  // clock ticks from boot to the start of the process

  bool operator==(const LauncherProcess&) const = default;
};

/// The calling process. Reads /proc; unreadable fields stay empty or 0.
LauncherProcess ThisProcess();

/// The login name of a user, or the number if there is none. Any thread; blocks as long as the
/// host's user database does.
std::string NameOfUser(uid_t uid);
/// That of the effective user. Defines "my" jobs.
std::string CallingUser();

/// True if `process` certainly lives: it is seen on this host. False if that cannot be known
/// from here. Reads /proc; does not block.
bool IsAlive(const LauncherProcess& process);

/// True if `process` has certainly ended: it ran on this host, and the host was rebooted or the
/// process id is gone or reused. False if that cannot be known from here (another host, another
/// process namespace). Reads /proc; does not block.
bool IsGone(const LauncherProcess& process);

}  // namespace adaptive_train
