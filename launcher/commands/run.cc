#include "launcher/commands/run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "launcher/commands/outcome.h"
#include "launcher/commands/overrides.h"
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

Exit codes: 0 done, 2 usage or configuration, 3 no feasible plan, 4 a check before the start failed,
5 a rank failed, 6 the store that --store names is unusable, 130/143 stopped after saving.)";

struct RunArguments {
  RunRequest request;
  std::vector<std::string> extras;
};

}  // namespace

void AddRunCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* run = app.add_subcommand(
      "run", "Plan and train a configuration, in a Slurm job or on this machine");
  run->footer(kRunFooter);
  run->allow_extras();
  run->add_option("config", arguments->request.config, "TOML file with the configuration")
      ->required()
      ->type_name("CONFIG");
  run->add_option(
         "--run-dir", arguments->request.run_dir,
         "Folder of this run (default: runs/JOBID, runs/ARRAY_TASK or, without Slurm, runs/TIME)")
      ->type_name("DIR")
      ->take_last();
  run->add_option("--store", arguments->request.store,
                  "Profile store (default: ~/.local/state/adaptive-train/profiles.db)")
      ->type_name("file:PATH")
      ->take_last();
  run->add_option("--inject", arguments->request.inject,
                  "Faults to rehearse with, where recovery.allow_injection = true")
      ->type_name("FAULTS")
      ->take_last();
  run->callback([run, arguments, &chosen] {
    arguments->extras = run->remaining();
    chosen = [arguments] {
      auto overrides = ParseOverrides(arguments->extras);
      if (!overrides) {
        return ReportError("run", overrides.error());
      }
      arguments->request.overrides = std::move(*overrides);
      return ToInt(RunTraining(arguments->request));
    };
  });
}

}  // namespace adaptive_train
