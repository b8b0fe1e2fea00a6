#include "db/service/arguments.h"

#include <fmt/format.h>
#include <pwd.h>

#include <toml++/toml.h>
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <istream>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "core/exit_code.h"
#include "core/file_io.h"
#include "core/result.h"
#include "db/service/log.h"

namespace adaptive_train {
namespace {

/// Jobs run for days, and failures and speeds of weeks ago still count.
constexpr int kFewestDays = 30, kMostDays = 36500;

constexpr const char* kFooter =
    R"(Runs in the foreground, for a service manager (sd_notify). SIGTERM and SIGINT end it in order:
requests that have come are answered. SIGHUP makes it read the settings again.

Each option can be set in the settings file (TOML) by its long name: operators = ["root", "slurm"].

Users name it by --store unix:PATH, and on other hosts by --store tcp:HOST:PORT. Each sees his own
jobs. Speeds of links and devices are everybody's, and so are failures of what failed three users.

Example:
  adaptive-traind --operators root,slurm

Exit codes: 0 ended by a signal, 2 usage, 6 the database or the socket cannot be used.)";

/// Settings as TOML: CLI11's own reader takes only what looks like it.
class TomlSettings : public CLI::Config {
 public:
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> settings;
    try {
      for (const auto& [key, value] : toml::parse(input)) {
        CLI::ConfigItem& item = settings.emplace_back();
        item.name = std::string(key.str());
        item.inputs = InputsOf(item.name, value);
      }
    } catch (const toml::parse_error& error) {
      throw Wrong(
          fmt::format("settings: line {}: {}", error.source().begin.line, error.description()));
    }
    return settings;
  }

 private:
  static CLI::ConfigError Wrong(const std::string& what) {
    return {Printable(what, 200), CLI::ExitCodes::ConfigError};
  }
  /// Of an empty list an empty word, which names nobody.
  static std::vector<std::string> InputsOf(const std::string& key, const toml::node& value) {
    std::vector<std::string> inputs;
    if (const toml::array* list = value.as_array()) {
      for (const toml::node& one : *list) inputs.push_back(WordOf(key, one));
      if (inputs.empty()) inputs.emplace_back();
    } else {
      inputs.push_back(WordOf(key, value));
    }
    return inputs;
  }
  static std::string WordOf(const std::string& key, const toml::node& value) {
    if (const auto text = value.value_exact<std::string>()) return *text;
    if (const auto number = value.value_exact<std::int64_t>()) return std::to_string(*number);
    if (const auto is = value.value_exact<bool>()) return *is ? "true" : "false";
    throw Wrong(
        fmt::format("settings: {}: allowed are text, whole numbers, true, false and lists "
                    "of these",
                    key));
  }
};

/// As the options have it.
struct Words {
  std::vector<std::string> operators = {"root"}, coordinators;
  std::optional<int> purge_jobs_after, purge_figures_after, purge_failures_after;  // days
  int mib_a_day = 256;
};

Result<uid_t> UidOf(const std::string& option, const std::string& name) {
  uid_t uid = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, uid);
  if (error == std::errc() && stop == end) return uid;
  if (const passwd* entry = ::getpwnam(name.c_str())) return entry->pw_uid;
  return Fail(option + ": there is no user " + Printable(name, 60) +
              ": allowed are login names and numbers, with commas between them");
}

Result<Rights> RightsFrom(const Words& words) {
  Rights rights;
  for (const std::string& name : words.operators) {
    if (name.empty()) continue;
    const auto uid = UidOf("--operators", name);
    if (!uid) return tl::unexpected(uid.error());
    rights.operators.insert(*uid);
  }
  for (const std::string& pair : words.coordinators) {
    if (pair.empty()) continue;
    const std::size_t colon = pair.find(':');
    if (colon == pair.npos || colon == 0)
      return Fail("--coordinators: " + Printable(pair, 60) +
                  " is not ACCOUNT:USER, as in physics:ann,physics:bob");
    const auto uid = UidOf("--coordinators", pair.substr(colon + 1));
    if (!uid) return tl::unexpected(uid.error());
    rights.coordinators[*uid].push_back(pair.substr(0, colon));
  }
  return rights;
}

Result<Arguments::Renewable> RenewableFrom(const Words& words) {
  return RightsFrom(words).map([&](Rights rights) {
    Arguments::Renewable renewable;
    renewable.rights = std::move(rights);
    if (words.purge_jobs_after)
      renewable.retention.jobs = std::chrono::days(*words.purge_jobs_after);
    if (words.purge_figures_after)
      renewable.retention.figures = std::chrono::days(*words.purge_figures_after);
    if (words.purge_failures_after)
      renewable.retention.failures = std::chrono::days(*words.purge_failures_after);
    renewable.of_user.bytes_of_day = static_cast<std::uint64_t>(words.mib_a_day) << 20;
    return renewable;
  });
}

/// Where it serves.
void AddPlaces(CLI::App& app, Arguments& arguments) {
  app.add_option("--database", arguments.database, "The SQLite file, on a local disk")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--socket", arguments.socket, "The unix socket to listen at")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--tcp", arguments.tcp,
                 "Lets users of other hosts connect, whom munge vouches for. HOST:PORT is what "
                 "they call this service")
      ->type_name("HOST:PORT");
  app.add_option("--tcp-listen", arguments.tcp_listen,
                 "The address of this host to listen at; without it all of them")
      ->type_name("ADDRESS")
      ->needs("--tcp");
  app.add_option("--munge-socket", arguments.munge_socket,
                 "The socket of munged; without it the one that libmunge knows")
      ->type_name("PATH")
      ->needs("--tcp");
  app.add_option("--metrics", arguments.metrics,
                 "Counts of requests and their times, written each 15 s for Prometheus")
      ->type_name("FILE");
  app.add_option(
         "--metrics-listen", arguments.metrics_listen,
         "The same by HTTP at /metrics (OpenMetrics), at an address of this host's loopback")
      ->type_name("ADDRESS:PORT");
}

void AddBackups(CLI::App& app, Arguments& arguments) {
  auto* const folder =
      app.add_option("--backup-to", arguments.backups.folder,
                     "Copies the database to this folder once a day, while it is in use")
          ->type_name("FOLDER");
  app.add_option("--backups-kept", arguments.backups.keep, "How many of these copies are kept")
      ->type_name("NUMBER")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->needs(folder);
}

/// Whom it serves how.
void AddRules(CLI::App& app, Arguments& arguments, Words& words) {
  app.add_option("--operators", words.operators, "Users who may see all users' jobs")
      ->type_name("USER,...")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--coordinators", words.coordinators,
                 "Users who may see the jobs that are charged to an account of Slurm")
      ->type_name("ACCOUNT:USER,...")
      ->delimiter(',');
  app.add_option("--ask-slurm", arguments.ask_slurm,
                 "Counts what users report of a node for others only if Slurm has seen their jobs "
                 "there at that time, and failures that Slurm confirms for all; takes accounts "
                 "from Slurm. With false every user is believed")
      ->type_name("true|false")
      ->default_str("true");
  app.add_option("--mib-a-day", words.mib_a_day, "What one user's requests may have within a day")
      ->type_name("MIB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--purge-jobs-after", words.purge_jobs_after,
                 "Removes jobs that ended so long ago, with all that is private; without it "
                 "they are kept for ever")
      ->type_name("DAYS")
      ->check(CLI::Range(kFewestDays, kMostDays));
  app.add_option("--purge-failures-after", words.purge_failures_after,
                 "Removes failures of nodes and links in jobs that have been removed, if they "
                 "happened so long ago; without it they are kept for ever")
      ->type_name("DAYS")
      ->check(CLI::Range(kFewestDays, kMostDays));
  app.add_option(
         "--purge-figures-after", words.purge_figures_after,
         "Removes speeds of links, devices and layers that their user last measured so long "
         "ago; without it they are kept for ever")
      ->type_name("DAYS")
      ->check(CLI::Range(kFewestDays, kMostDays));
}

}  // namespace

bool Arguments::SameButRenewable(const Arguments& other) const {
  const auto fixed = [](const Arguments& one) {
    return std::tie(one.database, one.socket, one.metrics, one.metrics_listen, one.tcp,
                    one.tcp_listen, one.munge_socket, one.ask_slurm, one.backups.folder,
                    one.backups.keep);
  };
  return fixed(*this) == fixed(other);
}

tl::expected<Arguments, int> ReadArguments(int argc, char** argv) {
  CLI::App app("Keeps the profile store that the users of a cluster share", "adaptive-traind");
  Arguments arguments;
  Words words;
  app.footer(kFooter);
  app.set_version_flag("--version", ADAPTIVE_TRAIN_VERSION);
  app.set_config("--settings", "", "A file of settings; the command line counts more");
  app.config_formatter(std::make_shared<TomlSettings>());
  app.allow_config_extras(CLI::config_extras_mode::error);
  AddPlaces(app, arguments);
  AddBackups(app, arguments);
  AddRules(app, arguments, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return tl::unexpected(app.exit(asked_for_help));
  } catch (const CLI::ParseError& error) {
    WriteLog(
        {LOG_ERR, fmt::format("{} (adaptive-traind --help lists what there is)", error.what())});
    return tl::unexpected(ToInt(ExitCode::kUsage));
  }
  auto renewable = RenewableFrom(words);
  if (!renewable) {
    WriteLog({LOG_ERR, renewable.error().message});
    return tl::unexpected(ToInt(ExitCode::kUsage));
  }
  arguments.renewable = std::move(*renewable);
  return arguments;
}

}  // namespace adaptive_train
