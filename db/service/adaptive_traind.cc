// adaptive-traind: keeps the profile store that the users of a cluster share.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/exit_code.h"
#include "core/file_io.h"
#include "core/file_limit.h"
#include "core/seconds.h"
#include "db/migration.h"
#include "db/open_database.h"
#include "db/outages.h"
#include "db/presence.h"
#include "db/service/notify.h"
#include "db/service/request_readers.h"
#include "db/service/request_writer.h"
#include "db/service/retention.h"
#include "db/service/slurm_asker.h"
#include "db/service/store_service.h"

namespace adaptive_train {
namespace {

/// More would only take the processor from each other: each keeps pages of the file for itself.
constexpr unsigned kFewestReaders = 3, kMostReaders = 8;
/// Jobs run for days, and failures and speeds of weeks ago still count.
constexpr int kFewestDays = 30, kMostDays = 36500;

constexpr const char* kFooter =
    R"(Runs in the foreground, for a service manager (sd_notify). SIGTERM and SIGINT end it in order:
requests that have come are answered.

Users name it by --store unix:PATH, and on other hosts by --store tcp:HOST:PORT. Each sees his own
jobs. Speeds of links and devices are everybody's, and so are failures of what failed three users.

Example:
  adaptive-traind --operators root,slurm

Exit codes: 0 ended by a signal, 2 usage, 6 the database or the socket cannot be used.)";

struct Arguments {
  std::string database = "/var/lib/adaptive-train/profiles.db", metrics;
  std::string socket = "/run/adaptive-traind/socket";
  std::string tcp, tcp_listen, munge_socket;
  std::vector<std::string> operators = {"root"};
  std::optional<int> purge_jobs_after, purge_figures_after;  // days
  int mib_a_day = 256;
  bool ask_slurm = false;
};

void Log(const std::string& line) {
  std::fputs(("adaptive-traind: " + line + "\n").c_str(), stderr);
}

Result<uid_t> UidOf(const std::string& name) {
  uid_t uid = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, uid);
  if (error == std::errc() && stop == end) return uid;
  if (const passwd* entry = ::getpwnam(name.c_str())) return entry->pw_uid;
  return Fail("--operators: there is no user " + Printable(name, 60) +
              ": allowed are login names and numbers, with commas between them");
}

Result<StoreService::Settings> SettingsFrom(const Arguments& arguments) {
  StoreService::Settings settings;
  settings.socket = arguments.socket;
  settings.database = arguments.database;
  settings.metrics = arguments.metrics;
  settings.log = Log;
  if (!arguments.tcp.empty()) settings.tcp = ServiceName{arguments.tcp, arguments.munge_socket};
  settings.tcp_listen = arguments.tcp_listen;
  settings.limits.of_user.bytes_of_day = static_cast<std::uint64_t>(arguments.mib_a_day) << 20;
  for (const std::string& name : arguments.operators) {
    const auto uid = UidOf(name);
    if (!uid) return tl::unexpected(uid.error());
    settings.operators.insert(*uid);
  }
  return settings;
}

Retention RetentionFrom(const Arguments& arguments) {
  Retention retention;
  if (arguments.purge_jobs_after) retention.jobs = std::chrono::days(*arguments.purge_jobs_after);
  if (arguments.purge_figures_after)
    retention.figures = std::chrono::days(*arguments.purge_figures_after);
  return retention;
}

/// Stores what Slurm says.
SlurmAsker::Take SlurmsWordTo(RequestWriter& writer) {
  return [&writer](const std::variant<SeenJob, SeenOutage>& seen) {
    writer.Add(
        [seen](Database& database) {
          if (const auto* job = std::get_if<SeenJob>(&seen))
            NotePresence(database, job->cluster, job->user, job->nodes, EpochSecondsNow());
          if (const auto* outage = std::get_if<SeenOutage>(&seen))
            NoteOutage(database, outage->cluster, outage->node, outage->time);
        },
        [](const StoreAnswer& answer) {
          if (const auto* refused = std::get_if<store_answer::Refused>(&answer))
            Log("what Slurm says is not stored: " + refused->why);
        });
  };
}

/// Returns when a signal has ended it.
Result<void> Serve(const Arguments& arguments) {
  auto settings = SettingsFrom(arguments);
  if (!settings) return tl::unexpected(settings.error());
  RaiseFileLimit();
  auto opened = OpenDatabase(StoreLocation{std::filesystem::absolute(arguments.database)},
                             kBusyTimeout, true, SchemaMigrations());
  if (!opened) return tl::unexpected(opened.error());
  const std::filesystem::path path = opened->location.path;
  // In the order of who needs whom: each ends before what it uses.
  boost::asio::io_context io(1);
  std::optional<RequestWriter> writer;
  std::optional<SlurmAsker> asker;
  std::optional<RequestReaders> readers;
  try {
    writer.emplace(std::move(*opened), RetentionFrom(arguments), Log);
    readers.emplace(path,
                    static_cast<int>(std::clamp(std::thread::hardware_concurrency(), kFewestReaders,
                                                kMostReaders)),
                    arguments.ask_slurm ? Counted::kSeenBySlurm : Counted::kAll);
  } catch (const DatabaseError& error) {
    return Fail(fmt::format("profile store {}: {}", path.string(), error.what()), ExitCode::kStore);
  }
  if (arguments.ask_slurm) {
    asker.emplace(SlurmsWordTo(*writer), Log);
    settings->will_write = [&](uid_t user, const StoreRequest& request) {
      asker->Ask(user, request);
    };
  }
  auto service = StoreService::Listen(io, std::move(*settings), *readers, *writer);
  if (!service) return tl::unexpected(service.error());
  boost::asio::signal_set signals(io, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code& error, int) {
    if (error) return;
    NotifyManager("STOPPING=1");
    Log("stopping: requests that have come are answered");
    (*service)->Stop();
  });
  Log(fmt::format("{} serves {} at {}", ADAPTIVE_TRAIN_VERSION, path.string(), arguments.socket));
  if (!arguments.tcp.empty())
    Log(fmt::format("and at tcp:{} for hosts whose settings have store_uid = {}", arguments.tcp,
                    ::geteuid()));
  NotifyManager("READY=1");
  io.run();
  return {};
}

int Run(int argc, char** argv) {
  CLI::App app("Keeps the profile store that the users of a cluster share", "adaptive-traind");
  Arguments arguments;
  app.footer(kFooter);
  app.set_version_flag("--version", ADAPTIVE_TRAIN_VERSION);
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
  app.add_option("--operators", arguments.operators, "Users who may see all users' jobs")
      ->type_name("USER,...")
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag("--ask-slurm", arguments.ask_slurm,
               "Counts what users report of a node for others only if squeue shows a job of theirs "
               "there");
  app.add_option("--mib-a-day", arguments.mib_a_day,
                 "What one user's requests may have within a day")
      ->type_name("MIB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--purge-jobs-after", arguments.purge_jobs_after,
                 "Removes jobs that ended so long ago, with all that belongs to them; without it "
                 "they are kept for ever")
      ->type_name("DAYS")
      ->check(CLI::Range(kFewestDays, kMostDays));
  app.add_option(
         "--purge-figures-after", arguments.purge_figures_after,
         "Removes speeds of links, devices and layers that their user last measured so long "
         "ago; without it they are kept for ever")
      ->type_name("DAYS")
      ->check(CLI::Range(kFewestDays, kMostDays));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    Log(fmt::format("{} (adaptive-traind --help lists what there is)", error.what()));
    return ToInt(ExitCode::kUsage);
  }
  const auto served = Serve(arguments);
  if (served) return 0;
  Log(served.error().message);
  return ToInt(served.error().exit_code);
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) { return adaptive_train::Run(argc, argv); }
