// The location of a profile store: the meaning of --store.
#include "db/store_location.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStoreVariable = "ADAPTIVE_TRAIN_STORE";

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

/// `kind` is the word before the colon.
Result<fs::path> PathIn(std::string_view text, std::string_view kind, std::string_view named_by) {
  fs::path path(text);
  if (text.substr(0, 2) == "~/") {
    auto home = HomeFolder();
    if (!home) return home;
    path = *home / text.substr(2);
  }
  std::error_code error;
  path = fs::absolute(path, error).lexically_normal();
  if (error || text.empty() || text.find('\0') != text.npos || !path.has_filename()) {
    return Fail(
        fmt::format("{}: '{}:{}' names no file: allowed is file:PATH, such as "
                    "file:~/profiles.db, and unix:PATH, the socket of adaptive-traind",
                    named_by, kind, text));
  }
  return path;
}

}  // namespace

StoreChoice ChooseStore(const std::string& typed, const Settings& settings) {
  if (!typed.empty()) return {typed, "--store", true};
  if (std::string named = Environment(kStoreVariable); !named.empty())
    return {std::move(named), kStoreVariable, false};
  if (settings.store.empty()) return {};
  return {settings.store, settings.sources.at("store"), false};
}

Result<StoreLocation> ParseStoreLocation(std::string_view text, std::string_view named_by) {
  if (text.empty()) return DefaultLocation();
  const std::string_view kind = text.substr(0, text.find(':'));
  const std::string_view rest = text.substr(std::min(text.size(), kind.size() + 1));
  if (kind == "file" || kind == "unix") {
    return PathIn(rest, kind, named_by).map([&](const fs::path& path) {
      using Kind = StoreLocation::Kind;
      return StoreLocation{path, kind == "file" ? Kind::kFile : Kind::kService};
    });
  }
  if (kind == "tcp") {
    return Fail(fmt::format("{}: '{}' asks for a store on another host, which is not in this "
                            "version: allowed is file:PATH, and unix:PATH on the host of "
                            "adaptive-traind",
                            named_by, text),
                ExitCode::kStore);
  }
  return Fail(
      fmt::format("{}: '{}' is not a store: allowed is file:PATH or unix:PATH", named_by, text));
}

std::string NameOf(const StoreLocation& location) {
  return fmt::format("profile store {}{}",
                     location.kind == StoreLocation::Kind::kService ? "unix:" : "",
                     location.path.string());
}

}  // namespace adaptive_train
