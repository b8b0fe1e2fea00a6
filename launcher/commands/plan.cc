#include "launcher/commands/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "core/file_io.h"
#include "core/runnable_plan.h"
#include "core/settings.h"
#include "db/known_store.h"
#include "launcher/commands/outcome.h"
#include "launcher/commands/overrides.h"
#include "launcher/commands/store_notes.h"
#include "launcher/measure/profile_reuse.h"
#include "launcher/planner/plan_words.h"
#include "launcher/run/plan_inputs.h"
#include "launcher/run/plan_request.h"
#include "launcher/simulator/simulator.h"
#include "launcher/simulator/timeline_svg.h"
#include "launcher/steps/programs.h"

namespace adaptive_train {
namespace {

constexpr const char* kPlanFooter =
    R"(Plans CONFIG as `run` would, for the nodes of this Slurm job, for this machine without Slurm, or for a cluster
described by a file: cluster.json of a run folder, or groups of equal nodes as in
examples/clusters/. Measured speeds come from the profile store, or with --profile from a file
(profile.json of a run folder). Every key of CONFIG can be given as --section.key=value.

Examples:
  adaptive-train plan config.toml --why
  adaptive-train plan config.toml --ideal
  adaptive-train plan config.toml --cluster examples/clusters/two-switches.json --why
  adaptive-train plan config.toml --cluster runs/17/cluster.json --profile runs/17/profile.json
  adaptive-train plan config.toml --parallel.pipeline=4 --simulate timeline.svg
  adaptive-train plan config.toml --parallel.layout='Et*3|(tt|)*2L'

Exit codes: 0 planned, 2 usage, configuration or file, 3 no feasible plan, 4 nodes not to be
examined, 6 the store that --store names is unusable.)";

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

struct PlanOptions {
  std::string config;
  std::string cluster;
  std::string profile;
  std::string store;
  std::string picture;  // empty: no simulation; "-": no picture
  bool simulate = false;
  bool json = false;
  bool why = false;
  bool ideal = false;
  std::optional<int> spares;  // none: the job's number of spares
  std::vector<std::string> extras;
};

template <class Value>
Result<Value> ReadDocument(const std::string& path, Result<Value> (*parse)(std::string_view)) {
  auto text = ReadFile(path, kMaxFileBytes);
  if (!text) return tl::unexpected(text.error());
  auto value = parse(*text);
  if (!value) return FailIn(path, value.error());
  return value;
}

/// Sets `spares`, unless given, to the job's number of spares.
Result<Cluster> FindCluster(const PlanOptions& options, const Config& config,
                            std::optional<int>& spares) {
  if (!options.cluster.empty()) return ReadDocument<Cluster>(options.cluster, ClusterFromJson);
  auto programs = FindPrograms();
  if (!programs) return tl::unexpected(programs.error());
  auto allocation = FindAllocation();
  if (!allocation) return tl::unexpected(allocation.error());
  if (!spares) spares = allocation->Spares();
  auto seen = SeeNodes(config, *allocation, *programs);
  if (!seen) return tl::unexpected(seen.error());
  return std::move(seen->cluster);
}

/// From the file, or from the store. A cluster file without a profile stands alone, unless a store
/// is named.
Result<Profile> FindProfile(const PlanOptions& options, const Settings& settings,
                            const Cluster& cluster, const Config& config) {
  if (!options.profile.empty()) return ReadDocument<Profile>(options.profile, ProfileFromJson);
  if (!options.cluster.empty() && options.store.empty()) return Profile{};
  const StoreChoice store = ChooseStore(options.store, settings);
  auto known = OpenKnownStore(store);
  if (!known) return tl::unexpected(known.error());
  TellNotes(*known, "plan");
  auto profile = known->store->ProfileOf(QueryOf(cluster, config));
  if (profile) return Usable(std::move(*profile), cluster, SpotCheckOf(config.profile, cluster));
  if (store.required) return profile;
  fmt::print(stderr, "adaptive-train plan: warning: {}; planned without it\n",
             profile.error().message);
  return Profile{};
}

std::string Simulated(const Simulation& simulation) {
  const StepCost& p = simulation.parts;
  return fmt::format(
      "simulated step {:.4f} s: forward and backward {:.4f}, bubble {:.4f}, activations {:.4f}, "
      "gradients {:.4f}, optimizer {:.4f}\n",
      simulation.MedianStep(), p.compute, p.bubble, p.activations, p.gradients, p.update);
}

nlohmann::ordered_json GridJson(const PlannedRun& planned) {
  auto grid = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < planned.grid.size(); ++i) {
    const GridPoint& point = planned.grid[i];
    nlohmann::ordered_json json = {{"micro_batches", point.micro_batches},
                                   {"micro_batch", point.micro_batch}};
    if (planned.plan.step_seconds) json["step_seconds"] = point.step_seconds;
    json["memory_share"] = point.memory_share;
    json["chosen"] = i == planned.chosen;
    if (!point.why_not.empty()) json["why_not"] = point.why_not;
    grid.push_back(std::move(json));
  }
  return grid;
}

Result<void> Show(const PlanOptions& options, const Config& config, const Cluster& cluster,
                  const PlannedRun& planned) {
  std::optional<Simulation> simulation;
  if (options.simulate) simulation = Simulate(planned.problem, planned.layout);
  if (simulation && !options.picture.empty()) {
    auto written =
        WriteFile(options.picture, TimelineSvg(planned.problem, planned.layout, *simulation));
    if (!written) return written;
  }
  if (options.json) {
    auto json = nlohmann::ordered_json::parse(ToJson(planned.plan));
    json["micro_batch_grid"] = GridJson(planned);
    if (simulation) json["simulated_step_seconds"] = simulation->MedianStep();
    fmt::print("{}\n", json.dump(2));
    return {};
  }
  fmt::print("{}", DescribePlan(planned.plan, cluster,
                                ModelShape::Of(DimsOf(config.model), FormatOf(config.train))));
  if (options.why)
    fmt::print("{}{}", ExplainPlan(planned.plan),
               DescribeGrid(planned.grid, planned.chosen, planned.plan.step_seconds.has_value()));
  if (simulation) fmt::print("{}", Simulated(*simulation));
  if (simulation && !options.picture.empty()) fmt::print("timeline: {}\n", options.picture);
  if (const std::string lacks = NotRunnable(planned.plan); !lacks.empty())
    fmt::print("note: this version cannot run {}\n", lacks);
  return {};
}

Result<void> PlanAndShow(const PlanOptions& options) {
  auto overrides = ParseOverrides(options.extras);
  if (!overrides) return tl::unexpected(overrides.error());
  const auto settings = LoadSettings();
  if (!settings) return tl::unexpected(settings.error());
  auto config = LoadConfig(options.config, *overrides, settings->defaults);
  if (!config) return tl::unexpected(config.error());
  std::optional<int> count = options.spares;
  auto cluster = FindCluster(options, *config, count);
  if (!cluster) return tl::unexpected(cluster.error());
  auto profile = FindProfile(options, *settings, *cluster, *config);
  if (!profile) return tl::unexpected(profile.error());
  auto gathered =
      GatherInputs(*config, std::move(*cluster), std::move(*profile), count.value_or(0));
  if (!gathered) return tl::unexpected(gathered.error());
  for (const SpareNode& spare : gathered->spares)
    if (!options.json) fmt::print("kept aside: {}\n", spare.why);
  PlanInputs& inputs = gathered->inputs;
  if (options.ideal) inputs.request.runnable_only = false;
  auto planned = PlanAndProblemFor(inputs);
  if (!planned) return tl::unexpected(planned.error());
  return Show(options, *config, inputs.cluster, *planned);
}

}  // namespace

void AddPlanCommand(CLI::App& app, std::function<int()>& chosen) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* verb = app.add_subcommand("plan", "Find the fastest plan, and show why");
  verb->footer(kPlanFooter);
  verb->allow_extras();
  verb->add_option("config", options->config, "TOML file with the configuration")
      ->required()
      ->type_name("CONFIG");
  verb->add_option("--cluster", options->cluster, "Plan for this cluster (JSON)")
      ->type_name("FILE");
  verb->add_option("--profile", options->profile, "Take measurements from this file (JSON)")
      ->type_name("FILE");
  verb->add_option("--store", options->store,
                   "Profile store (default: ~/.local/state/adaptive-train/profiles.db)")
      ->type_name("file:PATH|unix:PATH|tcp:HOST:PORT");
  verb->add_flag(
      "--why", options->why,
      "Predicted step by part, memory, what binds, what was rejected, gap to the bound, and the "
      "grid over micro-batches");
  auto* simulate =
      verb->add_option("--simulate", options->picture,
                       "Play the step event by event; with FILE, draw its timeline (SVG)")
          ->type_name("[FILE]")
          ->expected(0, 1);
  verb->add_flag("--ideal", options->ideal,
                 "Also what this version cannot run yet: tensor ranks with sketches of gradients; "
                 "also sharding");
  verb->add_option("--spares", options->spares,
                   "Keep N nodes aside, the worst first (default: as the job does)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxSpares));
  verb->add_flag("--json", options->json, "The plan as a JSON document");
  verb->callback([verb, simulate, options, &chosen] {
    options->extras = verb->remaining();
    options->simulate = simulate->count() > 0;
    chosen = [options] {
      auto done = PlanAndShow(*options);
      if (done) return 0;
      return ReportError("plan", done.error());
    };
  });
}

}  // namespace adaptive_train
