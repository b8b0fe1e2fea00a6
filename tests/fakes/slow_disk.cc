// A fault for tests, by LD_PRELOAD: every large write takes as many milliseconds as the file
// SLOW_DISK beside this library says when the write begins.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace {

/// Blocks of checkpoints are this large, other writes are not.
constexpr std::size_t kLarge = std::size_t{512} << 10;

long MillisecondsNow() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&MillisecondsNow), &self) == 0) return 0;
  std::string path(self.dli_fname);
  path = path.substr(0, path.rfind('/')) + "/SLOW_DISK";
  long milliseconds = 0;
  if (std::FILE* file = std::fopen(path.c_str(), "r"); file != nullptr) {
    if (std::fscanf(file, "%ld", &milliseconds) != 1) milliseconds = 0;
    std::fclose(file);
  }
  return milliseconds;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t write(int file, const void* bytes,
                                                                std::size_t size) {
  using Write = ssize_t (*)(int, const void*, std::size_t);
  static const auto real = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, "write"));
  if (size >= kLarge) {
    const long milliseconds = MillisecondsNow();
    const timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
    ::nanosleep(&time, nullptr);
  }
  return real(file, bytes, size);
}
