// A fault for tests, by LD_PRELOAD: statfs says NFS of every path with the text of the environment
// variable NETWORK_FOLDER in it.
#include <dlfcn.h>
#include <sys/statfs.h>

#include <cstdlib>
#include <cstring>

namespace {

bool IsOnTheNetwork(const char* path) {
  const char* folder = std::getenv("NETWORK_FOLDER");
  return folder != nullptr && std::strstr(path, folder) != nullptr;
}

constexpr unsigned kNfs = 0x6969;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int statfs(const char* path, struct statfs* answer) {
  static const auto real =
      reinterpret_cast<int (*)(const char*, struct statfs*)>(::dlsym(RTLD_NEXT, "statfs"));
  const int done = real(path, answer);
  if (done == 0 && IsOnTheNetwork(path)) answer->f_type = kNfs;
  return done;
}

__attribute__((visibility("default"))) int statfs64(const char* path, struct statfs64* answer) {
  static const auto real =
      reinterpret_cast<int (*)(const char*, struct statfs64*)>(::dlsym(RTLD_NEXT, "statfs64"));
  const int done = real(path, answer);
  if (done == 0 && IsOnTheNetwork(path)) answer->f_type = kNfs;
  return done;
}

}  // extern "C"
