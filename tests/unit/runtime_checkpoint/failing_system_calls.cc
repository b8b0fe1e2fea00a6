#include "tests/unit/runtime_checkpoint/failing_system_calls.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace adaptive_train::system_calls {
namespace {

std::atomic<Fate> fate_of_nth{Fate::kHappen};
std::atomic<int> nth{0};
std::atomic<int> count{0};

/// True where the call must fail; errno says why.
bool Fails() {
  const int call = ++count;
  const Fate fate = fate_of_nth;
  if (fate == Fate::kIoError && call >= nth) {
    errno = EIO;
    return true;
  }
  if (call != nth) return false;
  if (fate == Fate::kKillBefore || fate == Fate::kKillAmid) ::kill(::getpid(), SIGKILL);
  errno = ENOSPC;
  return fate == Fate::kNoSpace;
}

}  // namespace

void Arrange(Fate fate, int n) {
  fate_of_nth = fate;
  nth = n;
  count = 0;
}

int Count() { return count; }

bool IsToBeKilledAmid() { return fate_of_nth == Fate::kKillAmid && count + 1 == nth; }

extern "C" {
ssize_t __real_write(int fd, const void* bytes, size_t size);
int __real_fsync(int fd);
int __real_rename(const char* from, const char* to);
int __real_unlink(const char* path);
int __real_rmdir(const char* path);
int __real_mkdir(const char* path, mode_t mode);

ssize_t __wrap_write(int fd, const void* bytes, size_t size) {
  if (IsToBeKilledAmid() && __real_write(fd, bytes, size / 2) < 0) return -1;
  return Fails() ? -1 : __real_write(fd, bytes, size);
}
int __wrap_fsync(int fd) { return Fails() ? -1 : __real_fsync(fd); }
int __wrap_rename(const char* from, const char* to) {
  return Fails() ? -1 : __real_rename(from, to);
}
int __wrap_unlink(const char* path) { return Fails() ? -1 : __real_unlink(path); }
int __wrap_rmdir(const char* path) { return Fails() ? -1 : __real_rmdir(path); }
int __wrap_mkdir(const char* path, mode_t mode) { return Fails() ? -1 : __real_mkdir(path, mode); }
}

}  // namespace adaptive_train::system_calls
