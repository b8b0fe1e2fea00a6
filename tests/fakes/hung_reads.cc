// A fault for tests, by LD_PRELOAD: the rank whose number stands in the file HUNG_READS beside this
// library reads nothing by pread as long as that file is there.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

bool Hangs() {
  Dl_info self{};
  const char* rank = std::getenv("PMIX_RANK");
  if (rank == nullptr || ::dladdr(reinterpret_cast<void*>(&Hangs), &self) == 0) return false;
  std::string path(self.dli_fname);
  path = path.substr(0, path.rfind('/')) + "/HUNG_READS";
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return false;
  int hung = -1;
  const bool read = std::fscanf(file, "%d", &hung) == 1;
  std::fclose(file);
  return read && hung == std::atoi(rank);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t pread(int file, void* bytes,
                                                                std::size_t size, off_t offset) {
  using Pread = ssize_t (*)(int, void*, std::size_t, off_t);
  static const auto real = reinterpret_cast<Pread>(::dlsym(RTLD_NEXT, "pread"));
  while (Hangs()) {
    const timespec time{0, 50'000'000};
    ::nanosleep(&time, nullptr);
  }
  return real(file, bytes, size, offset);
}
