#include "spank_plugin/probe_child.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace adaptive_train::plugin {
namespace {

constexpr rlim_t kAddressSpaceBytes = rlim_t{16} << 30;  // NVML reserves far more than it uses
constexpr rlim_t kFileBytes = 1 << 20;
constexpr rlim_t kOpenFiles = 1024;
constexpr rlim_t kProcesses = 1024;  // includes all of nobody's on this node

[[noreturn]] void ReportAndExit(int descriptor, const char* step) {
  LaunchFailure failure{{}, errno};
  std::strncpy(failure.step, step, sizeof failure.step - 1);
  ::_exit(::write(descriptor, &failure, sizeof failure) < 0 ? 126 : 127);
}

bool SetLimit(__rlimit_resource resource, rlim_t value) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return false;
  limit.rlim_max = std::min(limit.rlim_max, value);
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(resource, &limit) == 0;
}

bool SetLimits(rlim_t cpu_seconds) {
  return SetLimit(RLIMIT_CPU, cpu_seconds) && SetLimit(RLIMIT_AS, kAddressSpaceBytes) &&
         SetLimit(RLIMIT_FSIZE, kFileBytes) && SetLimit(RLIMIT_NOFILE, kOpenFiles) &&
         SetLimit(RLIMIT_NPROC, kProcesses) && SetLimit(RLIMIT_CORE, 0);
}

void ResetSignals() {
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &by_default, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void CloseFrom(int first) {
  if (::close_range(static_cast<unsigned>(first), ~0U, 0) == 0) return;
  // Kernels before 5.9.
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < (rlim_t{1} << 20);
  const int end = known ? static_cast<int>(limit.rlim_max) : 1 << 20;
  for (int fd = first; fd < end; ++fd) ::close(fd);
}

bool ChangeUser(const ProbeIdentity& identity) {
  return ::setgroups(0, nullptr) == 0 &&
         ::setresgid(identity.group, identity.group, identity.group) == 0 &&
         ::setresuid(identity.user, identity.user, identity.user) == 0;
}

}  // namespace

void BecomeProbe(const Launch& launch) {
  constexpr int kFailure = 3;
  ResetSignals();
  if (::dup3(launch.failure, kFailure, O_CLOEXEC) < 0) ReportAndExit(launch.failure, "dup3");
  if (::setsid() < 0) ReportAndExit(kFailure, "setsid");
  if (::dup2(launch.null, 0) < 0 || ::dup2(launch.output, 1) < 0 || ::dup2(launch.complaint, 2) < 0)
    ReportAndExit(kFailure, "dup2");
  CloseFrom(kFailure + 1);
  if (::chdir("/") != 0) ReportAndExit(kFailure, "chdir");
  ::umask(022);
  if (!SetLimits(launch.cpu_seconds)) ReportAndExit(kFailure, "setrlimit");
  if (launch.run_as != nullptr && !ChangeUser(*launch.run_as))
    ReportAndExit(kFailure, "setgroups, setgid or setuid");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ReportAndExit(kFailure, "prctl");
  // After the change of user, which clears it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) ReportAndExit(kFailure, "prctl");
  if (::getppid() != launch.parent) ::_exit(127);
  ::execve(launch.path, launch.argv, launch.envp);
  ReportAndExit(kFailure, "execve");
}

}  // namespace adaptive_train::plugin
