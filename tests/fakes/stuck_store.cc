// A fault for tests, by LD_PRELOAD: no write to the profile store or its log ends as long as the
// file STUCK_STORE lies beside this library.
#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <string>

namespace {

bool Stuck() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&Stuck), &self) == 0) return false;
  std::string path(self.dli_fname);
  path = path.substr(0, path.rfind('/')) + "/STUCK_STORE";
  return ::access(path.c_str(), F_OK) == 0;
}

bool IsStore(int file) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
  return size > 0 && std::string(path, static_cast<std::size_t>(size)).find("/profiles.db") !=
                         std::string::npos;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t pwrite64(int file, const void* bytes,
                                                                   std::size_t size,
                                                                   off64_t offset) {
  using Pwrite = ssize_t (*)(int, const void*, std::size_t, off64_t);
  static const auto real = reinterpret_cast<Pwrite>(::dlsym(RTLD_NEXT, "pwrite64"));
  while (IsStore(file) && Stuck()) {
    const timespec time{0, 20'000'000};
    ::nanosleep(&time, nullptr);
  }
  return real(file, bytes, size, offset);
}
