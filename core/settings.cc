#include "core/settings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/config_keys.h"
#include "core/file_io.h"
#include "core/format_version.h"
#include "core/launch_settings.h"

namespace adaptive_train {
namespace {

/// credentials(7): -1 is nobody's.
constexpr std::int64_t kMostUid = 4294967294;
constexpr std::size_t kMaxSettingsBytes = 1 << 20;
constexpr const char* kSitePath = "/etc/adaptive-train/adaptive-train.toml";
constexpr const char* kSiteVariable = "ADAPTIVE_TRAIN_SITE_CONFIG";
constexpr const char* kBelowFolder = "/adaptive-train/adaptive-train.toml";

std::string VariableOr(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

/// Fails unless the file is of somebody whom all its readers trust.
Result<void> CheckTrust(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Fail(path + ": " + std::strerror(errno));
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return Fail(
        fmt::format("{}: belongs to uid {}: it counts for everybody and must be root's "
                    "(chown root)",
                    path, info.st_uid));
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Fail(
        fmt::format("{}: others than its owner may write it: it counts for everybody "
                    "(chmod go-w)",
                    path));
  return {};
}

std::string WhereIs(const std::string& path, const toml::node& node) {
  return fmt::format("{}: line {}", path, node.source().begin.line);
}

Result<void> ReadStore(const toml::node& node, Settings& settings) {
  const auto text = node.value_exact<std::string>();
  const bool known = text && (text->starts_with("file:") || text->starts_with("unix:") ||
                              text->starts_with("tcp:"));
  if (!known)
    return Fail(
        "store must be a text such as \"file:/var/lib/profiles.db\" or "
        "\"unix:/run/adaptive-traind/socket\"");
  settings.store = *text;
  return {};
}

Result<void> ReadStoreUid(const toml::node& node, Settings& settings) {
  if (node.value_exact<std::string>() == "") return {};  // not set
  const auto uid = node.value_exact<std::int64_t>();
  if (!uid || *uid < 0 || *uid > kMostUid)
    return Fail(
        "store_uid must be a uid in numbers, that of adaptive-traind: names differ between hosts");
  settings.store_uid = static_cast<uid_t>(*uid);
  return {};
}

Result<void> ReadMungeSocket(const toml::node& node, Settings& settings) {
  const auto path = node.value_exact<std::string>();
  if (!path || !(path->empty() || path->starts_with('/')))
    return Fail("munge_socket must be an absolute path, such as \"/run/munge/munge.socket.2\"");
  settings.munge_socket = *path;
  return {};
}

/// The keys outside of sections.
struct StoreKey {
  std::string_view name;
  Result<void> (*read)(const toml::node& node, Settings& settings);
};
constexpr StoreKey kStoreKeys[] = {
    {"store", ReadStore}, {"store_uid", ReadStoreUid}, {"munge_socket", ReadMungeSocket}};

Result<void> ReadVersion(const toml::node& node) {
  const auto version = node.value_exact<std::int64_t>();
  if (!version || *version < 1) return Fail("format_version must be an integer, 1 or more");
  if (*version <= kFormatVersion) return {};
  return Fail(fmt::format("format_version {} is newer than this program reads ({})", *version,
                          kFormatVersion));
}

Result<void> ReadDefault(const std::string& name, const toml::node& node, Config& defaults) {
  const ConfigKey* key = FindConfigKey(name);
  if (key == nullptr && name.find('.') == name.npos)
    return Fail(
        fmt::format("unknown key {}: outside of the sections there are store, "
                    "store_uid and munge_socket",
                    Printable(name, 80)));
  if (key == nullptr)
    return Fail(fmt::format("unknown key {}; the nearest is {}", Printable(name, 80),
                            NearestConfigKey(name.substr(0, 80), IsSetting)));
  if (!IsSetting(name))
    return Fail(name +
                " belongs into the configuration of a run: it says what is trained, not where");
  if (!key->read(defaults, node)) return Fail(fmt::format("{} must be {}", name, key->allowed));
  if (name != "launch.ports") return {};
  return ParsePorts(defaults.launch.ports).map([](PortRange) {});
}

/// `name` is one of kStoreKeys or "section.key".
Result<void> ReadSetting(const std::string& path, const std::string& name, const toml::node& node,
                         Settings& settings) {
  const auto of_store = std::ranges::find(kStoreKeys, name, &StoreKey::name);
  auto done = of_store != std::end(kStoreKeys) ? of_store->read(node, settings)
                                               : ReadDefault(name, node, settings.defaults);
  if (!done) return FailIn(WhereIs(path, node), done.error());
  settings.sources[name] = WhereIs(path, node);
  return {};
}

Result<void> ReadTable(const std::string& path, const toml::table& table, Settings& settings) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    Result<void> done;
    if (name == "format_version") {
      done = ReadVersion(node);
      if (!done) done = FailIn(WhereIs(path, node), done.error());
    } else if (const toml::table* section = node.as_table()) {
      for (const auto& [inner, value] : *section) {
        done = ReadSetting(path, name + "." + std::string(inner.str()), value, settings);
        if (!done) break;
      }
    } else {
      done = ReadSetting(path, name, node, settings);
    }
    if (!done) return done;
  }
  return {};
}

Result<void> ReadFileInto(const std::string& path, bool for_everybody, Settings& settings) {
  if (path.empty() || (::access(path.c_str(), F_OK) != 0 && errno == ENOENT)) return {};
  if (auto trusted = for_everybody ? CheckTrust(path) : Result<void>(); !trusted) return trusted;
  auto text = ReadFile(path, kMaxSettingsBytes);
  if (!text) return Fail(text.error().message);
  try {
    return ReadTable(path, toml::parse(*text), settings);
  } catch (const toml::parse_error& error) {
    return Fail(fmt::format("{}: line {}: {}", path, error.source().begin.line,
                            Printable(error.description())));
  }
}

}  // namespace

std::string SiteSettingsPath() { return VariableOr(kSiteVariable, kSitePath); }

std::string UserSettingsPath() {
  const std::string home = VariableOr("HOME", "");
  const std::string folder = VariableOr("XDG_CONFIG_HOME", home.empty() ? "" : home + "/.config");
  return folder.empty() ? "" : folder + kBelowFolder;
}

bool IsSetting(const std::string& key) {
  constexpr std::array<std::string_view, 3> kSections = {"launch.", "profile.", "recovery."};
  constexpr std::array<std::string_view, 5> kOfCheckpoints = {
      "checkpoint.every", "checkpoint.every_minutes", "checkpoint.keep",
      "checkpoint.before_end_seconds", "checkpoint.patience_s"};
  return key == "device.speeds" || std::ranges::find(kOfCheckpoints, key) != kOfCheckpoints.end() ||
         std::ranges::any_of(kSections,
                             [&](std::string_view section) { return key.starts_with(section); });
}

Result<Settings> LoadSettings() {
  Settings settings;
  if (auto site = ReadFileInto(SiteSettingsPath(), true, settings); !site)
    return tl::unexpected(site.error());
  if (auto user = ReadFileInto(UserSettingsPath(), false, settings); !user)
    return tl::unexpected(user.error());
  return settings;
}

Result<Settings> InRun(Settings settings, const std::string& config,
                       const std::vector<ConfigOverride>& overrides) {
  auto counts = LoadConfig(config, overrides, settings.defaults);
  if (!counts) return tl::unexpected(counts.error());
  settings.defaults = std::move(*counts);
  const auto text = ReadFile(config, kMaxSettingsBytes);
  if (!text) return tl::unexpected(text.error());
  // That it can be parsed is known.
  for (const auto& [section, node] : toml::parse(*text)) {
    if (!node.is_table()) continue;
    for (const auto& [key, value] : *node.as_table()) {
      const std::string name = std::string(section.str()) + "." + std::string(key.str());
      if (IsSetting(name)) settings.sources[name] = WhereIs(config, value);
    }
  }
  for (const auto& [name, value] : overrides)
    if (IsSetting(name)) settings.sources[name] = "the command line";
  return settings;
}

std::vector<ShownSetting> ListSettings(const Settings& settings) {
  const auto source = [&](const std::string& key) {
    const auto found = settings.sources.find(key);
    return found == settings.sources.end() ? std::string("built-in") : found->second;
  };
  const std::string uid =
      settings.store_uid ? std::to_string(*settings.store_uid) : std::string("\"\"");
  std::vector<ShownSetting> shown = {
      {"store", '"' + settings.store + '"', source("store")},
      {"store_uid", uid, source("store_uid")},
      {"munge_socket", '"' + settings.munge_socket + '"', source("munge_socket")}};
  for (const ConfigKey& key : ConfigKeys())
    if (IsSetting(key.path))
      shown.push_back({key.path, key.print(settings.defaults), source(key.path)});
  return shown;
}

}  // namespace adaptive_train
