// The location of a profile store: the meaning of --store.
#include "db/store_location.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
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

Result<StoreLocation> RemoteService(const StoreChoice& choice, std::string_view address) {
  if (!ParseHostAndPort(address))
    return Fail(
        fmt::format("{}: 'tcp:{}' names no service: allowed is tcp:HOST:PORT, such as "
                    "tcp:ctl:6822",
                    choice.named_by, address));
  if (!choice.service)
    return Fail(
        fmt::format("{}: 'tcp:{}' needs to know who may answer: set store_uid in {} to "
                    "the uid of adaptive-traind, which its log tells",
                    choice.named_by, address, SiteSettingsPath()));
  StoreLocation location;
  location.kind = StoreLocation::Kind::kRemoteService;
  location.address = address;
  location.service = *choice.service;
  location.munge_socket = choice.munge_socket;
  return location;
}

}  // namespace

std::optional<HostAndPort> ParseHostAndPort(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != host.npos) {
    return std::nullopt;
  }
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || number == 0 ||
      number > 65535)
    return std::nullopt;
  return HostAndPort{std::string(host), std::string(port)};
}

bool IsService(const StoreLocation& location) {
  return location.kind != StoreLocation::Kind::kFile;
}

StoreChoice ChooseStore(const std::string& typed, const Settings& settings,
                        const fs::path& socket) {
  std::error_code error;
  StoreChoice choice;
  choice.service = settings.store_uid;
  choice.munge_socket = settings.munge_socket;
  if (!typed.empty()) {
    choice.text = typed;
    choice.named_by = "--store";
    choice.required = true;
  } else if (std::string named = Environment(kStoreVariable); !named.empty()) {
    choice.text = std::move(named);
    choice.named_by = kStoreVariable;
  } else if (!settings.store.empty()) {
    choice.text = settings.store;
    choice.named_by = settings.sources.at("store");
  } else if (fs::exists(socket.parent_path(), error)) {
    choice.text = "unix:" + socket.string();
    choice.named_by = "the service's socket";
  }
  return choice;
}

Result<StoreLocation> ParseStoreLocation(const StoreChoice& choice) {
  const std::string_view text = choice.text;
  if (text.empty()) return DefaultLocation();
  const std::string_view kind = text.substr(0, text.find(':'));
  const std::string_view rest = text.substr(std::min(text.size(), kind.size() + 1));
  if (kind == "file" || kind == "unix") {
    return PathIn(rest, kind, choice.named_by).map([&](const fs::path& path) {
      using Kind = StoreLocation::Kind;
      return StoreLocation{path, kind == "file" ? Kind::kFile : Kind::kLocalService};
    });
  }
  if (kind == "tcp") return RemoteService(choice, rest);
  return Fail(
      fmt::format("{}: '{}' is not a store: allowed is file:PATH, unix:PATH or "
                  "tcp:HOST:PORT",
                  choice.named_by, text));
}

std::string NameOf(const StoreLocation& location) {
  using Kind = StoreLocation::Kind;
  if (location.kind == Kind::kRemoteService) return "profile store tcp:" + location.address;
  return fmt::format("profile store {}{}", location.kind == Kind::kLocalService ? "unix:" : "",
                     location.path.string());
}

}  // namespace adaptive_train
