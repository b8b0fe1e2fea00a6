// The location of a profile store: the meaning of --store.
#include "db/store_location.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<fs::path> HomeFolder() {
  std::string home = Environment("HOME");
  if (home.empty()) {
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 16384> buffer{};
    if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
        found != nullptr) {
      home = found->pw_dir;
    }
  }
  if (home.empty() || home.front() != '/') {
    return Fail("the profile store's default place needs a home folder, and HOME is '" + home +
                "': set HOME to an absolute path, or give --store file:PATH");
  }
  return fs::path(home);
}

Result<StoreLocation> DefaultLocation() {
  const fs::path below = "adaptive-train/profiles.db";
  const std::string state_home = Environment("XDG_STATE_HOME");
  if (!state_home.empty()) {
    if (state_home.front() != '/') {
      return Fail("XDG_STATE_HOME is '" + state_home +
                  "': set it to an absolute path, unset it, or give --store file:PATH");
    }
    return StoreLocation{(fs::path(state_home) / below).lexically_normal()};
  }
  return HomeFolder().map([&](const fs::path& home) {
    return StoreLocation{(home / ".local/state" / below).lexically_normal()};
  });
}

Result<StoreLocation> FileLocation(std::string_view text) {
  fs::path path(text);
  if (text.substr(0, 2) == "~/") {
    auto home = HomeFolder();
    if (!home) return tl::unexpected(home.error());
    path = *home / text.substr(2);
  }
  std::error_code error;
  path = fs::absolute(path, error).lexically_normal();
  if (error || text.empty() || text.find('\0') != text.npos || !path.has_filename()) {
    return Fail("--store: 'file:" + std::string(text) +
                "' names no file: allowed is file:PATH, such as file:~/profiles.db");
  }
  return StoreLocation{path};
}

}  // namespace

Result<StoreLocation> ParseStoreLocation(std::string_view text) {
  constexpr std::string_view kFile = "file:", kUnix = "unix:", kTcp = "tcp:";
  if (text.empty()) return DefaultLocation();
  if (text.substr(0, kFile.size()) == kFile) return FileLocation(text.substr(kFile.size()));
  if (text.substr(0, kUnix.size()) == kUnix || text.substr(0, kTcp.size()) == kTcp) {
    return Fail("--store: '" + std::string(text) +
                    "' asks for the shared store, which comes with the service adaptive-traind and "
                    "is not in this "
                    "version: use file:PATH",
                ExitCode::kStore);
  }
  return Fail("--store: '" + std::string(text) + "' is not a store: allowed is file:PATH");
}

}  // namespace adaptive_train
