// A fault for tests, by LD_PRELOAD: no pwrite and no fsync of a file ends while its path has the text
// of the file STUCK_DISK beside this library in it.
#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace {

bool IsStuck(int file) {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&IsStuck), &self) == 0) return false;
  std::string path(self.dli_fname);
  std::ifstream order(path.substr(0, path.rfind('/')) + "/STUCK_DISK");
  std::string stuck;
  if (!(order >> stuck)) return false;
  char target[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = ::readlink(link.c_str(), target, sizeof target);
  return size > 0 &&
         std::string(target, static_cast<std::size_t>(size)).find(stuck) != std::string::npos;
}

void WaitFor(int file) {
  while (IsStuck(file)) {
    const timespec time{0, 20'000'000};
    ::nanosleep(&time, nullptr);
  }
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) ssize_t pwrite64(int file, const void* bytes,
                                                        std::size_t size, off64_t offset) {
  static const auto real = reinterpret_cast<decltype(&pwrite64)>(::dlsym(RTLD_NEXT, "pwrite64"));
  WaitFor(file);
  return real(file, bytes, size, offset);
}

__attribute__((visibility("default"))) int fsync(int file) {
  static const auto real = reinterpret_cast<decltype(&fsync)>(::dlsym(RTLD_NEXT, "fsync"));
  WaitFor(file);
  return real(file);
}

}  // extern "C"
