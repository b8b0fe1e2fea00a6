#include "launcher/commands/nodes.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/seconds.h"
#include "core/settings.h"
#include "db/known_store.h"
#include "launcher/commands/outcome.h"
#include "launcher/commands/store_notes.h"
#include "launcher/commands/stored_cluster.h"
#include "launcher/nodes/standings.h"
#include "launcher/report/node_table.h"

namespace adaptive_train {
namespace {

constexpr const char* kNodesFooter =
    R"(One line for each node that a job has measured: its device, how fast that is and what part of the
median of its kind, the median speed of its links, its failures, each counting half as much after 14
days (recovery.half_life_days), and when a job last measured it. The nodes that would be kept aside
first stand first, with the reason. What other users' jobs failed at counts if three users' did.

Examples:
  adaptive-train nodes
  adaptive-train nodes n12 n13
  adaptive-train nodes --cluster alpha --json

Exit codes: 0 done, 2 usage, or nothing is stored, 6 the store that --store names is unusable.)";

struct NodesArguments {
  Settings settings;
  StoreChoice store;
  std::string typed_store, cluster;
  std::vector<std::string> names;
  bool json = false;
};

std::set<std::string> NamesIn(const Profile& profile) {
  std::set<std::string> names;
  for (const DeviceMeasurement& device : profile.devices)
    if (!device.node.empty()) names.insert(device.node);
  for (const LinkMeasurement& link : profile.links) names.insert({link.from, link.to});
  return names;
}

/// The figures of all nodes, and what failed.
Result<Profile> AllOf(const NodesArguments& arguments, ProfileStore& store,
                      const std::string& cluster) {
  auto profile = store.MeasurementsOf(cluster);
  if (!profile) return profile;
  std::set<std::string> names = NamesIn(*profile);
  names.insert(arguments.names.begin(), arguments.names.end());
  ProfileQuery query;
  query.cluster = cluster;
  query.nodes.assign(names.begin(), names.end());
  query.now = EpochSecondsNow();
  query.links = false;
  query.failure_half_life_s = arguments.settings.defaults.recovery.half_life_days * 86400;
  auto histories = store.ProfileOf(query);
  if (!histories) return histories;
  profile->nodes = std::move(histories->nodes);
  profile->lost_links = std::move(histories->lost_links);
  return profile;
}

/// Of the nodes that are named, if some are; of names that nothing is stored of, an error.
Result<std::vector<NodeStanding>> Named(const std::vector<std::string>& names,
                                        std::vector<NodeStanding> all) {
  if (names.empty()) return all;
  for (const std::string& name : names)
    if (std::ranges::find(all, name, &NodeStanding::node) == all.end())
      return Fail("nothing is stored of node " + Printable(name, 60));
  std::erase_if(all, [&](const NodeStanding& node) {
    return std::ranges::find(names, node.node) == names.end();
  });
  return all;
}

int RunNodesCommand(const NodesArguments& arguments) {
  auto known = ReadKnownStore(arguments.store);
  if (!known) return ReportError("nodes", known.error());
  TellNotes(*known, "nodes");
  const auto clusters = known->store->MeasuredClusters();
  if (!clusters) return ReportError("nodes", clusters.error());
  if (clusters->empty())
    return ReportError("nodes", Error{"nothing is stored of any node yet: run a job"});
  const auto cluster = ChooseCluster(arguments.cluster, *clusters);
  if (!cluster) return ReportError("nodes", cluster.error());
  const auto profile = AllOf(arguments, *known->store, *cluster);
  if (!profile) return ReportError("nodes", profile.error());
  const auto nodes = Named(arguments.names, StandingsOf(*profile));
  if (!nodes) return ReportError("nodes", nodes.error());
  return PrintText("nodes", arguments.json ? RenderNodesJson(*cluster, *nodes)
                                           : RenderNodeTable(*nodes, EpochSecondsNow()));
}

}  // namespace

void AddNodesCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<NodesArguments>();
  NodesArguments& a = *arguments;
  CLI::App* nodes =
      app.add_subcommand("nodes", "Show what is known of nodes, and which would be spares");
  nodes->footer(kNodesFooter);
  nodes->add_option("--cluster", a.cluster, "Of which cluster (default: this one, or the only one)")
      ->type_name("NAME");
  nodes->add_flag("--json", a.json, "All as JSON");
  nodes
      ->add_option("--store", a.typed_store,
                   "The profile store [~/.local/state/adaptive-train/profiles.db]")
      ->type_name("file:PATH|unix:PATH|tcp:HOST:PORT");
  nodes->add_option("names", a.names, "Only these nodes")->type_name("NODE...");
  nodes->callback([arguments, &chosen] {
    chosen = [arguments] {
      auto settings = LoadSettings();
      if (!settings) return ReportError("nodes", settings.error());
      arguments->settings = std::move(*settings);
      arguments->store = ChooseStore(arguments->typed_store, arguments->settings);
      return RunNodesCommand(*arguments);
    };
  });
}

}  // namespace adaptive_train
