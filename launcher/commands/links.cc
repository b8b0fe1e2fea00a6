#include "launcher/commands/links.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/file_io.h"
#include "core/seconds.h"
#include "core/settings.h"
#include "db/known_store.h"
#include "db/store_location.h"
#include "launcher/commands/outcome.h"
#include "launcher/commands/overrides.h"
#include "launcher/commands/store_notes.h"
#include "launcher/commands/stored_cluster.h"
#include "launcher/measure/allocation_profile.h"
#include "launcher/nodes/slow_parts.h"
#include "launcher/report/link_picture.h"
#include "launcher/report/link_table.h"
#include "launcher/run/plan_request.h"
#include "launcher/run/run_folder.h"
#include "launcher/steps/slurm_step.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr const char* kLinksFooter =
    R"(Without --measure: what the profile store holds of a cluster's links and devices, from all jobs so
far. With --measure, in a Slurm job: measures every pair of the job's nodes now, in rounds of pairs
that have no node in common, stores the figures and shows them; the step's logs and measure.json go to
the run folder, which all nodes must share. Without Slurm --measure measures this machine alone.
With CONFIG the step is launched as a run of it would be: [launch] and device.threads count. Every
key of CONFIG can be given as --section.key=value.
--json prints a profile that `adaptive-train plan --profile` reads.

Examples:
  adaptive-train links
  adaptive-train links --cluster alpha --svg links.svg
  salloc -N8 adaptive-train links --measure
  salloc -N8 adaptive-train links --measure config.toml --launch.ports=40000-40100
  adaptive-train links --json > profile.json

Exit codes: 0 done, 2 usage, 4 the nodes cannot be measured, 5 a node failed on the way, 6 the store
that --store names is unusable, 130/143 stopped.)";

struct LinksArguments {
  Config defaults;
  StoreChoice store;
  std::string typed_store, cluster, picture, run_dir, config;
  std::vector<std::string> extras;  // --section.key=value
  bool measure = false;
  bool json = false;
};

/// What to show.
struct ShownLinks {
  std::string cluster;
  Profile profile;
};

/// A line for people on standard error, never part of the output proper.
void Say(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

/// What there is to say where nothing is stored.
tl::unexpected<Error> NothingStored(const LinksArguments& arguments, bool trouble) {
  const auto location = ParseStoreLocation(arguments.store);
  if (trouble || !location)
    return Fail("no links are known without the store: name another with --store, or --measure");
  return Fail(fmt::format("no links are stored in {} yet: run a job, or --measure in one",
                          NameOf(*location)));
}

Result<ShownLinks> ReadStored(const LinksArguments& arguments) {
  auto known = ReadKnownStore(arguments.store);
  if (!known) return tl::unexpected(known.error());
  TellNotes(*known, "links");
  auto clusters = known->store->MeasuredClusters();
  const bool readable = clusters.has_value();
  if (!readable && arguments.store.required) return tl::unexpected(clusters.error());
  if (!readable) TellTrouble(clusters.error(), "links");
  if (!readable || clusters->empty())
    return NothingStored(arguments, !readable || known->trouble.has_value());
  auto cluster = ChooseCluster(arguments.cluster, *clusters);
  if (!cluster) return tl::unexpected(cluster.error());
  auto profile = known->store->MeasurementsOf(*cluster);
  if (!profile) return tl::unexpected(profile.error());
  return ShownLinks{*cluster, std::move(*profile)};
}

std::string RunDirOf(const LinksArguments& arguments, const Allocation& allocation) {
  if (!arguments.run_dir.empty()) return arguments.run_dir;
  return allocation.in_slurm ? fmt::format("runs/links-{}", allocation.job_id) : "runs/links";
}

/// What the figures are merged with and judged by: the store's own, or none where a store that is
/// not required cannot be read.
Result<Profile> MeasuredBefore(const LinksArguments& arguments, ProfileStore& store,
                               const std::string& cluster) {
  auto before = store.MeasurementsOf(cluster);
  if (before || arguments.store.required) return before;
  TellTrouble(before.error(), "links");
  return Profile{};
}

Result<void> Store(const LinksArguments& arguments, KnownStore& known, const std::string& cluster,
                   const Profile& measured) {
  auto saved = known.store->SaveMeasurements(cluster, measured);
  if (!saved && arguments.store.required) return saved;
  if (!saved || known.trouble)
    Say("adaptive-train links: warning: the figures are shown, and not stored" +
        (saved ? "" : ": " + saved.error().message));
  return {};
}

/// How the step is launched, and with how many threads it measures: as a run of CONFIG would.
Result<Config> ConfigFor(const LinksArguments& arguments) {
  auto overrides = ParseOverrides(arguments.extras);
  if (!overrides) return tl::unexpected(overrides.error());
  if (!arguments.config.empty())
    return LoadConfig(arguments.config, *overrides, arguments.defaults);
  if (overrides->empty()) return arguments.defaults;
  return Fail(fmt::format("--{} changes a key of CONFIG: name a configuration",
                          Printable(overrides->front().first, 80)));
}

Result<ShownLinks> MeasureNow(const LinksArguments& arguments) {
  if (!arguments.cluster.empty())
    return Fail("--cluster names a stored cluster; --measure measures the nodes of this job");
  auto config = ConfigFor(arguments);
  if (!config) return tl::unexpected(config.error());
  auto programs = FindPrograms();
  if (!programs) return tl::unexpected(programs.error());
  auto allocation = FindAllocation();
  if (!allocation) return tl::unexpected(allocation.error());
  if (allocation->in_slurm) {
    if (auto pmix = CheckPmixPlugin(config->launch.mpi); !pmix) return tl::unexpected(pmix.error());
  }
  auto known = OpenKnownStore(arguments.store);  // first, so that no work is lost
  if (!known) return tl::unexpected(known.error());
  TellNotes(*known, "links");
  auto folder = RunFolder::Open(RunDirOf(arguments, *allocation));
  if (!folder) return tl::unexpected(folder.error());
  auto seen = SeeNodes(*config, *allocation, *programs, folder->Path());
  if (!seen) return tl::unexpected(seen.error());
  const std::string& cluster = seen->cluster.name;
  auto before = MeasuredBefore(arguments, *known->store, cluster);
  if (!before) return tl::unexpected(before.error());
  EndingSteps ending;
  MeasureSite site{*allocation, seen->cluster, *programs, folder->Path(), ending, Say, {}};
  site.launch = config->launch;
  auto measured = ProfileAllocation(site, *before, false);
  ending.Await(kMeasureEndPatience);
  if (!measured) return tl::unexpected(measured.error());
  if (auto stored = Store(arguments, *known, cluster, measured->measured); !stored)
    return tl::unexpected(stored.error());
  for (const SlowPart& part : measured->slow) Say("note: " + part.line);
  Say(measured->summary);
  return ShownLinks{cluster, std::move(measured->measured)};
}

Result<void> CheckGoTogether(const LinksArguments& arguments) {
  auto overrides = ParseOverrides(arguments.extras);
  if (!overrides) return tl::unexpected(overrides.error());
  if (arguments.measure || (arguments.config.empty() && overrides->empty())) return {};
  return Fail("CONFIG and its keys say how to measure: they go with --measure");
}

int RunLinksCommand(const LinksArguments& arguments) {
  HeldSignals held;
  if (auto fits = CheckGoTogether(arguments); !fits) return ReportError("links", fits.error());
  const auto shown = arguments.measure ? MeasureNow(arguments) : ReadStored(arguments);
  if (!shown) return ReportError("links", shown.error());
  const double now = EpochSecondsNow();
  if (!arguments.picture.empty()) {
    const auto written = WriteFile(
        arguments.picture,
        RenderLinkPicture(shown->profile, "Links of " + Printable(shown->cluster, 60), now));
    if (!written) return ReportError("links", written.error());
  }
  return PrintText("links",
                   arguments.json ? ToJson(shown->profile) : RenderLinkTable(shown->profile, now));
}

}  // namespace

void AddLinksCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<LinksArguments>();
  LinksArguments& a = *arguments;
  CLI::App* links =
      app.add_subcommand("links", "Show or measure the links between nodes: a table, a picture");
  links->footer(kLinksFooter);
  links->add_flag("--measure", a.measure,
                  "Measure the nodes of this job now, and store the figures");
  links->add_option("--cluster", a.cluster, "Of which cluster (default: this one, or the only one)")
      ->type_name("NAME");
  links->add_option("--svg", a.picture, "Also draw the matrix into this file")->type_name("FILE");
  links->add_flag("--json", a.json, "A profile as JSON instead of the table");
  links
      ->add_option("--run-dir", a.run_dir,
                   "Folder of the measuring step (default: runs/links-JOBID)")
      ->type_name("DIR");
  links
      ->add_option("--store", a.typed_store,
                   "The profile store [~/.local/state/adaptive-train/profiles.db]")
      ->type_name("file:PATH|unix:PATH|tcp:HOST:PORT");
  links
      ->add_option("config", a.config, "With --measure: launch as a run of this configuration does")
      ->type_name("CONFIG");
  links->allow_extras();
  links->callback([links, arguments, &chosen] {
    arguments->extras = links->remaining();
    chosen = [arguments] {
      const auto settings = LoadSettings();
      if (!settings) return ReportError("links", settings.error());
      arguments->defaults = settings->defaults;
      arguments->store = ChooseStore(arguments->typed_store, *settings);
      return RunLinksCommand(*arguments);
    };
  });
}

}  // namespace adaptive_train
