#include "db/profile_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "db/database.h"
#include "db/failure_histories.h"
#include "db/profile_merge.h"
#include "db/told_figures.h"

namespace adaptive_train {
namespace {

constexpr const char* kLinksFrom =
    "SELECT to_node, latency_s, bytes_per_second, count, spread, measured_at, owner"
    " FROM link_profiles WHERE cluster = ?1 AND from_node = ?2 ORDER BY to_node, owner";
/// In the order of ?2, twice, and of owners: CROSS JOIN keeps the order of its loops.
constexpr const char* kLinksAmong =
    "SELECT to_node, latency_s, bytes_per_second, count, spread, measured_at, owner, from_node"
    " FROM json_each(?2) AS one CROSS JOIN json_each(?2) AS other CROSS JOIN link_profiles"
    " ON cluster = ?1 AND from_node = one.value AND to_node = other.value";
constexpr const char* kOneLink =
    "SELECT to_node, latency_s, bytes_per_second, count, spread, measured_at, owner"
    " FROM link_profiles"
    " WHERE cluster = ?1 AND from_node = ?2 AND to_node = ?3 AND owner = ?4";
constexpr const char* kReplaceLink =
    "INSERT OR REPLACE INTO link_profiles (cluster, from_node, to_node, owner, latency_s,"
    " bytes_per_second, count, spread, measured_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

constexpr const char* kDevicesOf =
    "SELECT node, product_flops, bytes_per_second, transfer_s_per_byte, count, spread,"
    "       measured_at, owner"
    " FROM device_profiles WHERE cluster = ?1 AND device_kind = ?2 ORDER BY node, owner";
constexpr const char* kOneDevice =
    "SELECT node, product_flops, bytes_per_second, transfer_s_per_byte, count, spread,"
    "       measured_at, owner"
    " FROM device_profiles"
    " WHERE cluster = ?1 AND device_kind = ?2 AND node = ?3 AND owner = ?4";
constexpr const char* kReplaceDevice =
    "INSERT OR REPLACE INTO device_profiles (cluster, device_kind, node, owner, product_flops,"
    " bytes_per_second, transfer_s_per_byte, count, spread, measured_at)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

constexpr const char* kLayersOf =
    "SELECT layer, micro_batch, forward_s, backward_s, weight_gradients_s, update_s,"
    "       gradient_variance, count, spread, measured_at FROM layer_profiles"
    " WHERE owner = ?1 AND device_kind = ?2 AND model = ?3"
    " ORDER BY layer, micro_batch";
constexpr const char* kOneLayer =
    "SELECT layer, micro_batch, forward_s, backward_s, weight_gradients_s, update_s,"
    "       gradient_variance, count, spread, measured_at FROM layer_profiles"
    " WHERE owner = ?1 AND device_kind = ?2 AND model = ?3 AND layer = ?4 AND micro_batch = ?5";
constexpr const char* kReplaceLayer =
    "INSERT OR REPLACE INTO layer_profiles (owner, device_kind, model, layer, micro_batch,"
    " forward_s, backward_s, weight_gradients_s, update_s, gradient_variance, count, spread,"
    " measured_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

constexpr const char* kNodesOf =
    "SELECT DISTINCT from_node FROM link_profiles WHERE cluster = ?1 ORDER BY from_node";
constexpr const char* kKindsOf =
    "SELECT DISTINCT device_kind FROM device_profiles WHERE cluster = ?1 ORDER BY device_kind";
constexpr const char* kClusters =
    "SELECT cluster FROM (SELECT cluster, owner FROM link_profiles UNION"
    "                     SELECT cluster, owner FROM device_profiles)"
    " WHERE ?2 OR owner = ?1 OR cluster IN (SELECT cluster FROM presence)"
    " GROUP BY cluster ORDER BY cluster";

bool Speed(double value) { return std::isfinite(value) && value > 0; }
bool Amount(double value) { return std::isfinite(value) && value >= 0; }

bool Founded(const Evidence& evidence) {
  return evidence.count >= 1 && Amount(evidence.spread) && Amount(evidence.measured_at);
}
bool Sound(const LinkMeasurement& link) {
  return Founded(link.evidence) && Amount(link.latency_s) && Speed(link.bytes_per_second);
}
bool Sound(const DeviceMeasurement& device) {
  return Founded(device.evidence) && Speed(device.product_flops) &&
         Speed(device.bytes_per_second) && Amount(device.transfer_s_per_byte);
}
bool Sound(const LayerMeasurement& layer) {
  return Founded(layer.evidence) && layer.micro_batch >= 1 && Amount(layer.forward_s) &&
         Amount(layer.backward_s) && Amount(layer.weight_gradients_s) &&
         Speed(layer.forward_s + layer.backward_s) && Amount(layer.update_s) &&
         Amount(layer.gradient_variance);
}

std::string Name(const LinkMeasurement& link) {
  return fmt::format("link {} to {}", link.from, link.to);
}
std::string Name(const DeviceMeasurement& device) {
  return fmt::format("device {} of {}", device.device_kind, device.node);
}
std::string Name(const LayerMeasurement& layer) {
  return fmt::format("layer {} of {} on {}", layer.layer, layer.model, layer.device_kind);
}

LinkMeasurement ReadLink(Statement& row, const std::string& from, Owner& owner) {
  LinkMeasurement link;
  link.from = from;
  RowReader(row) >> link.to >> link.latency_s >> link.bytes_per_second >> link.evidence.count >>
      link.evidence.spread >> link.evidence.measured_at >> owner;
  return link;
}

DeviceMeasurement ReadDevice(Statement& row, const std::string& kind, Owner& owner) {
  DeviceMeasurement device;
  device.device_kind = kind;
  RowReader(row) >> device.node >> device.product_flops >> device.bytes_per_second >>
      device.transfer_s_per_byte >> device.evidence.count >> device.evidence.spread >>
      device.evidence.measured_at >> owner;
  return device;
}

LayerMeasurement ReadLayer(Statement& row, const std::string& kind, const std::string& model) {
  LayerMeasurement layer;
  layer.device_kind = kind;
  layer.model = model;
  RowReader(row) >> layer.layer >> layer.micro_batch >> layer.forward_s >> layer.backward_s >>
      layer.weight_gradients_s >> layer.update_s >> layer.gradient_variance >>
      layer.evidence.count >> layer.evidence.spread >> layer.evidence.measured_at;
  return layer;
}

/// Merges one kind of figure: `find` reads the stored one, `store` writes the merged one.
template <class Measurement, class Find, class Store>
Result<void> MergeAll(const std::vector<Measurement>& fresh, const Find& find, const Store& store) {
  for (const Measurement& one : fresh) {
    if (!Sound(one)) {
      return Fail(fmt::format("profile store: the figures measured for {} are not positive and "
                              "finite, or nothing stands behind them: they are not stored",
                              Name(one)),
                  ExitCode::kStore);
    }
    const std::optional<Measurement> known = find(one);
    store(known && Sound(*known) ? Merged(*known, one) : one);
  }
  return {};
}

Result<void> MergeLinks(Database& database, Owner owner, const std::string& cluster,
                        const std::vector<LinkMeasurement>& links) {
  Statement select(database, kOneLink), replace(database, kReplaceLink);
  return MergeAll(
      links,
      [&](const LinkMeasurement& link) -> std::optional<LinkMeasurement> {
        select.Bind(cluster, link.from, link.to, owner);
        if (!select.Step()) return std::nullopt;
        return ReadLink(select, link.from, owner);
      },
      [&](const LinkMeasurement& link) {
        replace
            .Bind(cluster, link.from, link.to, owner, link.latency_s, link.bytes_per_second,
                  link.evidence.count, link.evidence.spread, link.evidence.measured_at)
            .Run();
      });
}

Result<void> MergeDevices(Database& database, Owner owner, const std::string& cluster,
                          const std::vector<DeviceMeasurement>& devices) {
  Statement select(database, kOneDevice), replace(database, kReplaceDevice);
  return MergeAll(
      devices,
      [&](const DeviceMeasurement& device) -> std::optional<DeviceMeasurement> {
        select.Bind(cluster, device.device_kind, device.node, owner);
        if (!select.Step()) return std::nullopt;
        return ReadDevice(select, device.device_kind, owner);
      },
      [&](const DeviceMeasurement& device) {
        replace
            .Bind(cluster, device.device_kind, device.node, owner, device.product_flops,
                  device.bytes_per_second, device.transfer_s_per_byte, device.evidence.count,
                  device.evidence.spread, device.evidence.measured_at)
            .Run();
      });
}

Result<void> MergeLayers(Database& database, Owner owner,
                         const std::vector<LayerMeasurement>& layers) {
  Statement select(database, kOneLayer), replace(database, kReplaceLayer);
  return MergeAll(
      layers,
      [&](const LayerMeasurement& layer) -> std::optional<LayerMeasurement> {
        select.Bind(owner, layer.device_kind, layer.model, layer.layer, layer.micro_batch);
        if (!select.Step()) return std::nullopt;
        return ReadLayer(select, layer.device_kind, layer.model);
      },
      [&](const LayerMeasurement& layer) {
        replace
            .Bind(owner, layer.device_kind, layer.model, layer.layer, layer.micro_batch,
                  layer.forward_s, layer.backward_s, layer.weight_gradients_s, layer.update_s,
                  layer.gradient_variance, layer.evidence.count, layer.evidence.spread,
                  layer.evidence.measured_at)
            .Run();
      });
}

/// Who is told, and of what.
struct Telling {
  Owner reader = kFileOwner;
  double now = 0;
  Presence& presence;

  bool Counts(Owner owner, const LinkMeasurement& link) const {
    return owner == reader || (presence.Counts(owner, link.from, link.evidence.measured_at) &&
                               presence.Counts(owner, link.to, link.evidence.measured_at));
  }
  bool Counts(Owner owner, const DeviceMeasurement& device) const {
    return owner == reader || presence.Counts(owner, device.node, device.evidence.measured_at);
  }
};

/// Of each thing one figure is told. `select` gives all rows of it in sequence, `read` the
/// figure of a row and its owner, and `name` what is the same in all of them.
template <class Read, class Name, class Measurement>
void TellAll(Statement& select, const Telling& telling, const Read& read, const Name& name,
             std::vector<Measurement>& told) {
  std::vector<Report<Measurement>> reports;
  const auto tell = [&] {
    if (auto one = Told(std::exchange(reports, {}), telling.reader, telling.now))
      told.push_back(std::move(*one));
  };
  while (select.Step()) {
    Report<Measurement> report;
    report.figure = read(report.owner);
    if (!Sound(report.figure) || !telling.Counts(report.owner, report.figure)) continue;
    if (!reports.empty() && name(reports.front().figure) != name(report.figure)) tell();
    reports.push_back(std::move(report));
  }
  tell();
}

/// Links of kLinksAmong, which is bound.
void TellLinksAmong(Statement& select, const Telling& telling, std::vector<LinkMeasurement>& told) {
  constexpr int kFrom = 7;
  TellAll(
      select, telling,
      [&](Owner& owner) { return ReadLink(select, Column<std::string>(select, kFrom), owner); },
      [](const LinkMeasurement& link) { return std::tie(link.from, link.to); }, told);
}

/// Links from `node`, in the order of their other ends. `select` is bound.
void TellLinks(Statement& select, const std::string& node, const Telling& telling,
               std::vector<LinkMeasurement>& told) {
  TellAll(
      select, telling, [&](Owner& owner) { return ReadLink(select, node, owner); },
      [](const LinkMeasurement& link) { return link.to; }, told);
}

/// Devices of `kind`, in the order of their nodes.
void TellDevices(Statement& select, const std::string& cluster, const std::string& kind,
                 const Telling& telling, std::vector<DeviceMeasurement>& told) {
  select.Bind(cluster, kind);
  TellAll(
      select, telling, [&](Owner& owner) { return ReadDevice(select, kind, owner); },
      [](const DeviceMeasurement& device) { return device.node; }, told);
}

}  // namespace

Result<void> MergeProfile(Database& database, Owner owner, const std::string& cluster,
                          const Profile& profile) {
  return MergeLinks(database, owner, cluster, profile.links)
      .and_then([&] { return MergeDevices(database, owner, cluster, profile.devices); })
      .and_then([&] { return MergeLayers(database, owner, profile.layers); });
}

Profile ReadProfile(Database& database, Owner owner, const ProfileQuery& query, Presence presence) {
  Profile profile;
  const Telling telling{owner, query.now, presence};
  const std::set<std::string> nodes(query.nodes.begin(), query.nodes.end());
  if (query.links) {
    const std::string names =
        nlohmann::json(nodes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    Statement links(database, kLinksAmong);
    links.Bind(query.cluster, names);
    TellLinksAmong(links, telling, profile.links);
  }
  FailureHistories histories = ReadHistories(database, owner, query, presence);
  profile.nodes = std::move(histories.nodes);
  profile.lost_links = std::move(histories.links);
  Statement devices(database, kDevicesOf), layers(database, kLayersOf);
  for (const std::string& kind :
       std::set<std::string>(query.device_kinds.begin(), query.device_kinds.end())) {
    TellDevices(devices, query.cluster, kind, telling, profile.devices);
    if (query.model_key.empty()) continue;
    layers.Bind(owner, kind, query.model_key);
    while (layers.Step()) {
      LayerMeasurement layer = ReadLayer(layers, kind, query.model_key);
      if (Sound(layer)) profile.layers.push_back(std::move(layer));
    }
  }
  // Devices of other nodes say what is usual for their kind: nodes may be invented.
  std::erase_if(profile.devices, [&](const DeviceMeasurement& device) {
    return device.evidence.trust != Trust::kKnown && !nodes.contains(device.node);
  });
  return profile;
}

Profile ReadMeasurements(Database& database, Owner owner, const std::string& cluster,
                         EpochSeconds now, Presence presence) {
  const auto words = [&](const char* sql) {
    std::vector<std::string> found;
    Statement statement(database, sql);
    statement.Bind(cluster);
    while (statement.Step()) found.push_back(Column<std::string>(statement));
    return found;
  };
  Profile profile;
  const Telling telling{owner, now, presence};
  Statement links(database, kLinksFrom), devices(database, kDevicesOf);
  for (const std::string& node : words(kNodesOf)) {
    links.Bind(cluster, node);
    TellLinks(links, node, telling, profile.links);
  }
  for (const std::string& kind : words(kKindsOf))
    TellDevices(devices, cluster, kind, telling, profile.devices);
  return profile;
}

std::vector<std::string> ReadClusters(Database& database, Owner owner, ClustersOf of) {
  std::vector<std::string> clusters;
  Statement statement(database, kClusters);
  statement.Bind(owner, std::int64_t{of == ClustersOf::kAll});
  while (statement.Step()) clusters.push_back(Column<std::string>(statement));
  return clusters;
}

}  // namespace adaptive_train
