// adaptive-traind: keeps the profile store that the users of a cluster share.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/exit_code.h"
#include "core/file_io.h"
#include "core/file_limit.h"
#include "core/seconds.h"
#include "db/job_writes.h"
#include "db/migration.h"
#include "db/open_database.h"
#include "db/outages.h"
#include "db/presence.h"
#include "db/service/arguments.h"
#include "db/service/backups.h"
#include "db/service/log.h"
#include "db/service/metrics_port.h"
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

StoreService::Settings SettingsFrom(const Arguments& arguments) {
  StoreService::Settings settings;
  settings.socket = arguments.socket;
  settings.database = arguments.database;
  settings.metrics = arguments.metrics;
  settings.log = WriteLog;
  if (!arguments.tcp.empty()) settings.tcp = ServiceName{arguments.tcp, arguments.munge_socket};
  settings.tcp_listen = arguments.tcp_listen;
  settings.rights = arguments.renewable.rights;
  settings.limits.of_user = arguments.renewable.of_user;
  return settings;
}

/// Stores what Slurm says.
SlurmAsker::Take SlurmsWordTo(RequestWriter& writer) {
  return [&writer](const std::variant<SeenJob, SeenOutage>& seen) {
    writer.Add(
        [seen](Database& database) {
          if (const auto* job = std::get_if<SeenJob>(&seen)) {
            for (const SeenJob::Stay& stay : job->stays)
              NotePresence(database, job->cluster, job->user, stay.nodes, stay.time);
            if (job->charged)
              WriteAccount(database, job->user,
                           {job->cluster, job->job.slurm_job_id, job->job.restart_count,
                            job->charged->account, job->charged->since});
          }
          // As with speeds, only of who has been there.
          const auto* down = std::get_if<SeenOutage>(&seen);
          if (down != nullptr &&
              Presence(database, down->cluster).Counts(down->user, down->node, down->failed))
            NoteOutage(database, down->cluster, down->node, down->time);
        },
        [](const StoreAnswer& answer) {
          if (const auto* refused = std::get_if<store_answer::Refused>(&answer))
            WriteLog({LOG_ERR, "what Slurm says is not stored: " + refused->why});
        });
  };
}

/// Jobs that ran when the service ended may run on.
void AskAboutRunning(SlurmAsker& asker, const std::filesystem::path& path) {
  constexpr double kLongest = 60 * 86400;
  const auto database = OpenReader(path);
  Statement running(*database,
                    "SELECT owner, slurm_job_id, restart_count FROM jobs"
                    " WHERE start_time > ?1 AND state = 'RUNNING' AND slurm_job_id > 0");
  running.Bind(EpochSecondsNow() - kLongest);
  while (running.Step()) {
    Owner owner = 0;
    JobQuestion job;
    RowReader(running) >> owner >> job.slurm_job_id >> job.restart_count;
    asker.Ask(static_cast<uid_t>(owner), std::vector<SlurmQuestion>{job});
  }
}

using Read = std::function<tl::expected<Arguments, int>()>;

/// Takes the settings that `read` gives, as far as that goes without a new start.
void Reload(const Arguments& arguments, const Read& read, RequestWriter& writer,
            StoreService& service) {
  const auto now = read();
  if (!now) return WriteLog({LOG_WARNING, "settings are not read again, and stay as they were"});
  writer.Keep(now->renewable.retention);
  service.Renew(now->renewable.rights, now->renewable.of_user);
  if (now->SameButRenewable(arguments)) return WriteLog({"settings are read again"});
  WriteLog(
      {LOG_WARNING,
       "settings are read again: places, backups and --ask-slurm will change with a new start"});
}

void TellPlaces(const Arguments& arguments, const std::filesystem::path& database) {
  WriteLog(fmt::format("{} serves {} at {}", ADAPTIVE_TRAIN_VERSION, database.string(),
                       arguments.socket));
  if (!arguments.tcp.empty())
    WriteLog(fmt::format("and at tcp:{} for hosts whose settings have store_uid = {}",
                         arguments.tcp, ::geteuid()));
}

/// Calls `reload` at each SIGHUP, and `stop` at the first other signal.
void AwaitSignals(boost::asio::signal_set& signals, const std::function<void()>& reload,
                  const std::function<void()>& stop) {
  signals.async_wait([&signals, reload, stop](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (signal != SIGHUP) {
      NotifyManager("STOPPING=1");
      WriteLog({"stopping: requests that have come are answered"});
      return stop();
    }
    NotifyManager("RELOADING=1");
    reload();
    NotifyManager("READY=1");
    AwaitSignals(signals, reload, stop);
  });
}

/// Returns when a signal has ended it.
Result<void> Serve(const Arguments& arguments, const Read& read) {
  StoreService::Settings settings = SettingsFrom(arguments);
  RaiseFileLimit();
  boost::asio::io_context io(1);
  // Before anything that takes time: a signal that comes meanwhile waits.
  boost::asio::signal_set signals(io, SIGTERM, SIGINT, SIGHUP);
  auto opened = OpenDatabase(StoreLocation{std::filesystem::absolute(arguments.database)},
                             kBusyTimeout, true, SchemaMigrations());
  if (!opened) return tl::unexpected(opened.error());
  const std::filesystem::path path = opened->location.path;
  // In the order of who needs whom: each ends before what it uses.
  std::optional<RequestWriter> writer;
  std::shared_ptr<SlurmAsker> asker;
  std::optional<RequestReaders> readers;
  try {
    writer.emplace(std::move(*opened), arguments.renewable.retention, WriteLog);
    readers.emplace(path,
                    static_cast<int>(std::clamp(std::thread::hardware_concurrency(), kFewestReaders,
                                                kMostReaders)),
                    arguments.ask_slurm ? Counted::kSeenBySlurm : Counted::kAll);
    if (arguments.ask_slurm) {
      asker = std::make_shared<SlurmAsker>(SlurmsWordTo(*writer), WriteLog);
      AskAboutRunning(*asker, path);
    }
  } catch (const DatabaseError& error) {
    return Fail(fmt::format("profile store {}: {}", path.string(), error.what()), ExitCode::kStore);
  }
  if (asker) {
    // The writer answers its last requests when there is no asker any more.
    settings.ask_slurm = [weak = std::weak_ptr(asker)](
                             uid_t user, const std::vector<SlurmQuestion>& questions) {
      if (const auto there = weak.lock()) there->Ask(user, questions);
    };
  }
  std::optional<Backups> backups;
  if (!arguments.backups.folder.empty()) backups.emplace(path, arguments.backups, WriteLog);
  auto service = StoreService::Listen(io, std::move(settings), *readers, *writer);
  if (!service) return tl::unexpected(service.error());
  std::unique_ptr<MetricsPort> metrics;
  if (!arguments.metrics_listen.empty()) {
    auto port = MetricsPort::Listen(io, arguments.metrics_listen, [&] {
      return (*service)->Metrics(MetricsFormat::kOpenMetrics);
    });
    if (!port) return tl::unexpected(port.error());
    metrics = std::move(*port);
  }
  AwaitSignals(
      signals, [&] { Reload(arguments, read, *writer, **service); },
      [&] {
        (*service)->Stop();
        if (metrics) metrics->Stop();
      });
  TellPlaces(arguments, path);
  NotifyManager("READY=1");
  io.run();
  return {};
}

int Run(int argc, char** argv) {
  // For SlurmAsker; here, as there is one thread.
  ::setenv("SLURM_TIME_FORMAT", "%s", 1);
  const auto read = [=] { return ReadArguments(argc, argv); };
  const auto arguments = read();
  if (!arguments) return arguments.error();
  const auto served = Serve(*arguments, read);
  if (served) return 0;
  WriteLog({LOG_ERR, served.error().message});
  return ToInt(served.error().exit_code);
}

}  // namespace
}  // namespace adaptive_train

int main(int argc, char** argv) { return adaptive_train::Run(argc, argv); }
