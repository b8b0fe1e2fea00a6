#include "spank_plugin/strays.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "spank_plugin/descriptor.h"

namespace adaptive_train::plugin {
namespace {

/// A file of /proc; empty if it cannot be read.
std::string ReadProc(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char block[4096];
  for (ssize_t n = 1; n > 0;) {
    n = ::read(file.Get(), block, sizeof block);
    if (n > 0) text.append(block, static_cast<std::size_t>(n));
  }
  return text;
}

/// The children of all threads of this process.
std::set<pid_t> Children() {
  std::set<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (tasks == nullptr) return children;
  while (const dirent* task = ::readdir(tasks.get())) {
    if (task->d_name[0] == '.') continue;
    const std::string text = ReadProc(std::string("/proc/self/task/") + task->d_name + "/children");
    for (const char* place = text.c_str();;) {
      char* end = nullptr;
      const long pid = std::strtol(place, &end, 10);
      if (end == place) break;
      children.insert(static_cast<pid_t>(pid));
      place = end;
    }
  }
  return children;
}

/// Whether `user` is the real user of a process. The owner of its /proc folder is root for some
/// processes.
bool BelongsTo(pid_t pid, uid_t user) {
  const std::string status = ReadProc("/proc/" + std::to_string(pid) + "/status");
  const std::size_t place = status.find("\nUid:\t");
  return place != std::string::npos &&
         std::strtoul(status.c_str() + place + 6, nullptr, 10) == user;
}

}  // namespace

Strays::Strays() : before_(Children()) {
  ::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Strays::~Strays() { ::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_); }

void Strays::End(uid_t user, std::chrono::steady_clock::time_point deadline) {
  // Each round ends the orphans of the previous one. A process that forks faster is stopped by the
  // deadline.
  for (bool found = true; found && std::chrono::steady_clock::now() < deadline;) {
    found = false;
    std::set<pid_t> strays = Children();
    std::erase_if(strays,
                  [&](pid_t pid) { return before_.contains(pid) || !BelongsTo(pid, user); });
    for (const pid_t pid : strays) ::kill(pid, SIGKILL);
    for (const pid_t pid : strays) found |= Reap(pid, deadline);
  }
}

bool Reap(pid_t child, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const pid_t reaped = ::waitpid(child, nullptr, WNOHANG);
    if (reaped == child || (reaped < 0 && errno != EINTR)) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace adaptive_train::plugin
