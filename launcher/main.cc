// adaptive-train: the one command that a person types. Each verb is a file in commands/.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>

#include "core/edit_distance.h"
#include "core/exit_code.h"
#include "core/file_io.h"
#include "launcher/commands/data.h"
#include "launcher/commands/doctor.h"
#include "launcher/commands/eval.h"
#include "launcher/commands/export.h"
#include "launcher/commands/import.h"
#include "launcher/commands/init.h"
#include "launcher/commands/jobs.h"
#include "launcher/commands/links.h"
#include "launcher/commands/node_ports.h"
#include "launcher/commands/nodes.h"
#include "launcher/commands/plan.h"
#include "launcher/commands/probe.h"
#include "launcher/commands/run.h"

namespace {

constexpr const char* kFooter = R"(Examples:
  sbatch -N4 --adaptive-train job.sh        where job.sh calls: adaptive-train run config.toml
  adaptive-train run config.toml            the same on this machine
  adaptive-train jobs                       what became of it

adaptive-train VERB --help tells more about each.)";

/// The verb nearest to `word`; empty if `word` is a verb or an option.
std::string NearestVerb(const CLI::App& app, const std::string& word) {
  if (word.empty() || word.front() == '-') return "";
  std::string nearest;
  std::size_t least = word.size() + 1;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == word) return "";
    if (verb->get_group().empty()) continue;  // hidden from people
    const std::size_t distance = adaptive_train::EditDistance(verb->get_name(), word);
    if (nearest.empty() || distance < least) nearest = verb->get_name(), least = distance;
  }
  return nearest;
}

}  // namespace

int main(int argc, char** argv) {
  // A job's output is a file, and somebody follows it: each line goes there as it is said.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  CLI::App app("Trains Transformers on uneven Slurm clusters", "adaptive-train");
  app.footer(kFooter);
  app.set_version_flag("--version", ADAPTIVE_TRAIN_VERSION);
  app.require_subcommand(1);
  std::function<int()> chosen;
  adaptive_train::AddInitCommand(app, chosen);
  adaptive_train::AddRunCommand(app, chosen);
  adaptive_train::AddPlanCommand(app, chosen);
  adaptive_train::AddJobsCommand(app, chosen);
  adaptive_train::AddLinksCommand(app, chosen);
  adaptive_train::AddNodePortsCommand(app, chosen);
  adaptive_train::AddNodesCommand(app, chosen);
  adaptive_train::AddDataCommand(app, chosen);
  adaptive_train::AddProbeCommand(app, chosen);
  adaptive_train::AddDoctorCommand(app, chosen);
  adaptive_train::AddEvalCommand(app, chosen);
  adaptive_train::AddExportCommand(app, chosen);
  adaptive_train::AddImportCommand(app, chosen);
  adaptive_train::AddNodeCheckCommand(app, chosen);
  adaptive_train::AddLocalStepCommand(app, chosen);
  adaptive_train::AddRequeueLostCommand(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    const std::string word = argc > 1 ? argv[1] : "";
    if (const std::string nearest = NearestVerb(app, word); !nearest.empty()) {
      fmt::print(stderr,
                 "adaptive-train: there is no verb '{}': the nearest is {} (adaptive-train --help "
                 "lists what there is)\n",
                 adaptive_train::Printable(word, 40), nearest);
      return adaptive_train::ToInt(adaptive_train::ExitCode::kUsage);
    }
    fmt::print(stderr, "adaptive-train: {} (adaptive-train --help lists what there is)\n",
               error.what());
    return adaptive_train::ToInt(adaptive_train::ExitCode::kUsage);
  }
  return chosen();
}
