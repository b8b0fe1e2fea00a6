// A fault for tests, by LD_PRELOAD: once the file FULL_QUOTA lies beside this library, writes to
// the shards of checkpoints fail as those of a user whose quota is used up.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace {

bool QuotaIsFull() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&QuotaIsFull), &self) == 0) return false;
  const std::string path(self.dli_fname);
  return ::access((path.substr(0, path.rfind('/')) + "/FULL_QUOTA").c_str(), F_OK) == 0;
}

bool IsOfACheckpoint(int file) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path - 1);
  return length > 0 && std::string(path).find("/checkpoints/") != std::string::npos;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t write(int file, const void* bytes,
                                                                std::size_t size) {
  using Write = ssize_t (*)(int, const void*, std::size_t);
  static const auto real = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, "write"));
  const int before = errno;
  const bool full = IsOfACheckpoint(file) && QuotaIsFull();
  errno = full ? EDQUOT : before;
  return full ? -1 : real(file, bytes, size);
}
