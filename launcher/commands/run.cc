#include "launcher/commands/run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "core/settings.h"
#include "db/known_store.h"
#include "db/launcher_process.h"
#include "launcher/commands/job_key.h"
#include "launcher/commands/outcome.h"
#include "launcher/commands/overrides.h"
#include "launcher/commands/store_notes.h"
#include "launcher/run/job_run.h"

namespace adaptive_train {
namespace {

constexpr const char* kRunFooter =
    R"(Every key of CONFIG can be given on the command line as --section.key=value; the last one counts.
A run folder that holds checkpoints is resumed. First Ctrl-C or SIGTERM: save and stop; second: stop
now. SIGUSR1: save and go on.

FAULTS, with semicolons between them, happen once each: kill rank R at step S; freeze rank R at step
S; cut node N at step S (its ranks are stopped, as if nothing reached it); slow node N (or rank R) to
P % from step S to T; fail save at step S (the first save from then on).

Examples:
  adaptive-train run config.toml
  adaptive-train run config.toml --recovery.allow_injection=true --inject "kill rank 3 at step 20"
  adaptive-train run config.toml --train.steps=20 --optimizer.lr=3e-4
  adaptive-train run config.toml --run-dir runs/first --store file:/var/tmp/profiles.db
  adaptive-train run --continue 1234        the run of job 1234, as it was configured

Exit codes: 0 done, 2 usage or configuration, 3 no feasible plan, 4 a check before the start failed,
5 a rank failed, 6 the store that --store names is unusable, 75 saved, run again (Slurm's
RequeueExit=75 does), 130/143 stopped after saving.)";

struct RunArguments {
  RunRequest request;
  std::string store;      // as typed
  std::string continued;  // the job whose run goes on; empty: none
  std::vector<std::string> extras;
};

/// The run folder of an earlier job of the caller's, the newest where a number came twice.
Result<std::string> FolderOfJob(const std::string& job, const StoreChoice& store) {
  const auto key = ParseJobKey(job);
  if (!key) return FailIn("--continue", key.error());
  auto known = ReadKnownStore(store);
  if (!known) return tl::unexpected(known.error());
  TellNotes(*known, "run");
  JobQuery query;
  query.ids = {*key};
  query.users = {CallingUser()};
  const auto rows = known->store->FindJobs(query);
  if (!rows) return tl::unexpected(rows.error());
  if (rows->empty())
    return Fail(
        fmt::format("--continue: the store has no job {} of yours (adaptive-train jobs lists "
                    "them); --run-dir names a run folder without it",
                    job));
  return rows->back().job.run_dir;
}

/// Fills in what --continue stands for: the folder, and its configuration unless one is given.
Result<void> TakeUp(RunArguments& arguments) {
  if (arguments.continued.empty()) return {};
  auto folder = FolderOfJob(arguments.continued, arguments.request.store);
  if (!folder) return tl::unexpected(folder.error());
  arguments.request.run_dir = *folder;
  if (arguments.request.config.empty())
    arguments.request.config = *folder + "/config.resolved.toml";
  return {};
}

}  // namespace

void AddRunCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* run = app.add_subcommand(
      "run", "Plan and train a configuration, in a Slurm job or on this machine");
  run->footer(kRunFooter);
  run->allow_extras();
  run->add_option("config", arguments->request.config,
                  "TOML file with the configuration; with --continue the run's own if not given")
      ->type_name("CONFIG");
  auto* folder = run->add_option("--run-dir", arguments->request.run_dir,
                                 "Folder of this run (default: runs/JOBID, runs/ARRAY_TASK or, "
                                 "without Slurm, runs/TIME)")
                     ->type_name("DIR")
                     ->take_last();
  run->add_option("--continue", arguments->continued,
                  "Goes on with the run of an earlier job, in its folder: 1234, 1230_4 or L12")
      ->type_name("JOBID")
      ->excludes(folder)
      ->take_last();
  run->add_option("--store", arguments->store,
                  "Profile store (default: ~/.local/state/adaptive-train/profiles.db)")
      ->type_name("file:PATH|unix:PATH|tcp:HOST:PORT")
      ->take_last();
  run->add_option("--inject", arguments->request.inject,
                  "Faults to rehearse with, where recovery.allow_injection = true")
      ->type_name("FAULTS")
      ->take_last();
  run->callback([run, arguments, &chosen] {
    if (arguments->request.config.empty() && arguments->continued.empty())
      throw CLI::RequiredError("config");
    arguments->extras = run->remaining();
    chosen = [arguments] {
      auto overrides = ParseOverrides(arguments->extras);
      if (!overrides) {
        return ReportError("run", overrides.error());
      }
      arguments->request.overrides = std::move(*overrides);
      const auto settings = LoadSettings();
      if (!settings) return ReportError("run", settings.error());
      arguments->request.defaults = settings->defaults;
      arguments->request.store = ChooseStore(arguments->store, *settings);
      if (auto taken = TakeUp(*arguments); !taken) return ReportError("run", taken.error());
      return ToInt(RunTraining(arguments->request));
    };
  });
}

}  // namespace adaptive_train
