#include "db/profile_rows.h"

#include <SQLiteCpp/Database.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "db/profile_merge.h"
#include "db/statement.h"

namespace adaptive_train {
namespace {

constexpr const char* kLinksFrom =
    "SELECT to_node, latency_s, bytes_per_second, count, spread, measured_at FROM link_profiles"
    " WHERE cluster = ?1 AND from_node = ?2 ORDER BY to_node";
constexpr const char* kOneLink =
    "SELECT to_node, latency_s, bytes_per_second, count, spread, measured_at FROM link_profiles"
    " WHERE cluster = ?1 AND from_node = ?2 AND to_node = ?3";
constexpr const char* kReplaceLink =
    "INSERT OR REPLACE INTO link_profiles (cluster, from_node, to_node, latency_s,"
    " bytes_per_second, count, spread, measured_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

constexpr const char* kDevicesOf =
    "SELECT node, product_flops, bytes_per_second, transfer_s_per_byte, count, spread, measured_at"
    " FROM device_profiles"
    " WHERE cluster = ?1 AND device_kind = ?2 ORDER BY node";
constexpr const char* kOneDevice =
    "SELECT node, product_flops, bytes_per_second, transfer_s_per_byte, count, spread, measured_at"
    " FROM device_profiles"
    " WHERE cluster = ?1 AND device_kind = ?2 AND node = ?3";
constexpr const char* kReplaceDevice =
    "INSERT OR REPLACE INTO device_profiles (cluster, device_kind, node, product_flops,"
    " bytes_per_second, transfer_s_per_byte, count, spread, measured_at) VALUES (?1, ?2, ?3, ?4, "
    "?5,"
    " ?6, ?7, ?8, ?9)";

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
    "SELECT cluster FROM link_profiles UNION SELECT cluster FROM device_profiles ORDER BY cluster";

constexpr const char* kNodeFailures =
    "SELECT time, kind FROM failures JOIN jobs ON jobs.id = failures.job_id"
    " WHERE failures.host = ?1 AND time > ?2 AND jobs.cluster = ?3 AND blamed = 'node'"
    " ORDER BY time";
constexpr const char* kLinkFailures =
    "SELECT time, peer_host FROM failures JOIN jobs ON jobs.id = failures.job_id"
    " WHERE failures.host = ?1 AND time > ?2 AND jobs.cluster = ?3 AND blamed = 'link'"
    " ORDER BY time";

/// A failure so many half-lives old counts less than a thousandth.
constexpr double kForgottenHalfLives = 10;

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

LinkMeasurement ReadLink(SQLite::Statement& row, const std::string& from) {
  LinkMeasurement link;
  link.from = from;
  RowReader(row) >> link.to >> link.latency_s >> link.bytes_per_second >> link.evidence.count >>
      link.evidence.spread >> link.evidence.measured_at;
  return link;
}

DeviceMeasurement ReadDevice(SQLite::Statement& row, const std::string& kind) {
  DeviceMeasurement device;
  device.device_kind = kind;
  RowReader(row) >> device.node >> device.product_flops >> device.bytes_per_second >>
      device.transfer_s_per_byte >> device.evidence.count >> device.evidence.spread >>
      device.evidence.measured_at;
  return device;
}

LayerMeasurement ReadLayer(SQLite::Statement& row, const std::string& kind,
                           const std::string& model) {
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

Result<void> MergeLinks(SQLite::Database& database, const std::string& cluster,
                        const std::vector<LinkMeasurement>& links) {
  SQLite::Statement select(database, kOneLink), replace(database, kReplaceLink);
  return MergeAll(
      links,
      [&](const LinkMeasurement& link) -> std::optional<LinkMeasurement> {
        select.reset();
        BindAll(select, cluster, link.from, link.to);
        if (!select.executeStep()) return std::nullopt;
        return ReadLink(select, link.from);
      },
      [&](const LinkMeasurement& link) {
        BindAll(replace, cluster, link.from, link.to, link.latency_s, link.bytes_per_second,
                link.evidence.count, link.evidence.spread, link.evidence.measured_at);
        replace.exec();
        replace.reset();
      });
}

Result<void> MergeDevices(SQLite::Database& database, const std::string& cluster,
                          const std::vector<DeviceMeasurement>& devices) {
  SQLite::Statement select(database, kOneDevice), replace(database, kReplaceDevice);
  return MergeAll(
      devices,
      [&](const DeviceMeasurement& device) -> std::optional<DeviceMeasurement> {
        select.reset();
        BindAll(select, cluster, device.device_kind, device.node);
        if (!select.executeStep()) return std::nullopt;
        return ReadDevice(select, device.device_kind);
      },
      [&](const DeviceMeasurement& device) {
        BindAll(replace, cluster, device.device_kind, device.node, device.product_flops,
                device.bytes_per_second, device.transfer_s_per_byte, device.evidence.count,
                device.evidence.spread, device.evidence.measured_at);
        replace.exec();
        replace.reset();
      });
}

Result<void> MergeLayers(SQLite::Database& database, Owner owner,
                         const std::vector<LayerMeasurement>& layers) {
  SQLite::Statement select(database, kOneLayer), replace(database, kReplaceLayer);
  return MergeAll(
      layers,
      [&](const LayerMeasurement& layer) -> std::optional<LayerMeasurement> {
        select.reset();
        BindAll(select, owner, layer.device_kind, layer.model, layer.layer, layer.micro_batch);
        if (!select.executeStep()) return std::nullopt;
        return ReadLayer(select, layer.device_kind, layer.model);
      },
      [&](const LayerMeasurement& layer) {
        BindAll(replace, owner, layer.device_kind, layer.model, layer.layer, layer.micro_batch,
                layer.forward_s, layer.backward_s, layer.weight_gradients_s, layer.update_s,
                layer.gradient_variance, layer.evidence.count, layer.evidence.spread,
                layer.evidence.measured_at);
        replace.exec();
        replace.reset();
      });
}

/// Reads what failed, for the nodes of a query.
class FailureReader {
 public:
  FailureReader(SQLite::Database& database, const ProfileQuery& query)
      : query_(query), of_node_(database, kNodeFailures), of_link_(database, kLinkFailures) {}

  /// Adds the failures of `node`, and those of links that it reported.
  void Read(const std::string& node, const std::set<std::string>& nodes) {
    NodeHistory history;
    history.node = node;
    Find(of_node_, node);
    while (of_node_.executeStep()) {
      const auto kind = ChoiceOf<FailureKind>(of_node_.getColumn(1).getString());
      if (!kind) continue;
      Count(of_node_.getColumn(0).getDouble(), history);
      const auto of_kind = std::ranges::find(history.kinds, *kind, &CountedFailures::kind);
      if (of_kind == history.kinds.end())
        history.kinds.push_back({*kind, 1});
      else
        ++of_kind->count;
    }
    if (history.failures > 0) nodes_.push_back(std::move(history));
    Find(of_link_, node);
    while (of_link_.executeStep()) {
      const std::string peer = of_link_.getColumn(1).getString();
      if (!nodes.contains(peer)) continue;
      LinkHistory& link = links_[std::minmax(node, peer)];
      Count(of_link_.getColumn(0).getDouble(), link);
      ++link.count;
    }
  }

  void MoveTo(Profile& profile) {
    profile.nodes = std::move(nodes_);
    for (auto& [ends, link] : links_) {
      link.from = ends.first, link.to = ends.second;
      profile.lost_links.push_back(std::move(link));
    }
  }

 private:
  void Find(SQLite::Statement& statement, const std::string& node) {
    statement.reset();
    BindAll(statement, node, query_.now - kForgottenHalfLives * query_.failure_half_life_s,
            query_.cluster);
  }
  template <class History>
  void Count(double time, History& history) const {
    const double age = std::max(0.0, query_.now - time);
    history.failures += std::exp2(-age / query_.failure_half_life_s);
    history.within_s = std::max(history.within_s, age);
  }

  const ProfileQuery& query_;
  SQLite::Statement of_node_, of_link_;
  std::vector<NodeHistory> nodes_;
  std::map<std::pair<std::string, std::string>, LinkHistory> links_;  // by both ends, in order
};

}  // namespace

Result<void> MergeProfile(SQLite::Database& database, Owner owner, const std::string& cluster,
                          const Profile& profile) {
  return MergeLinks(database, cluster, profile.links)
      .and_then([&] { return MergeDevices(database, cluster, profile.devices); })
      .and_then([&] { return MergeLayers(database, owner, profile.layers); });
}

Profile ReadProfile(SQLite::Database& database, Owner owner, const ProfileQuery& query) {
  Profile profile;
  const std::set<std::string> nodes(query.nodes.begin(), query.nodes.end());
  SQLite::Statement links(database, kLinksFrom);
  FailureReader failures(database, query);
  for (const std::string& node : nodes) {
    links.reset();
    BindAll(links, query.cluster, node);
    while (links.executeStep()) {
      LinkMeasurement link = ReadLink(links, node);
      if (nodes.count(link.to) != 0 && Sound(link)) profile.links.push_back(std::move(link));
    }
    failures.Read(node, nodes);
  }
  failures.MoveTo(profile);
  SQLite::Statement devices(database, kDevicesOf), layers(database, kLayersOf);
  for (const std::string& kind :
       std::set<std::string>(query.device_kinds.begin(), query.device_kinds.end())) {
    devices.reset();
    BindAll(devices, query.cluster, kind);
    while (devices.executeStep()) {
      DeviceMeasurement device = ReadDevice(devices, kind);
      if (Sound(device)) profile.devices.push_back(std::move(device));
    }
    if (query.model_key.empty()) continue;
    layers.reset();
    BindAll(layers, owner, kind, query.model_key);
    while (layers.executeStep()) {
      LayerMeasurement layer = ReadLayer(layers, kind, query.model_key);
      if (Sound(layer)) profile.layers.push_back(std::move(layer));
    }
  }
  return profile;
}

Profile ReadMeasurements(SQLite::Database& database, const std::string& cluster) {
  const auto words = [&](const char* sql) {
    std::vector<std::string> found;
    SQLite::Statement statement(database, sql);
    BindAll(statement, cluster);
    while (statement.executeStep()) found.push_back(statement.getColumn(0).getString());
    return found;
  };
  Profile profile;
  SQLite::Statement links(database, kLinksFrom), devices(database, kDevicesOf);
  for (const std::string& node : words(kNodesOf)) {
    links.reset();
    BindAll(links, cluster, node);
    while (links.executeStep()) {
      LinkMeasurement link = ReadLink(links, node);
      if (Sound(link)) profile.links.push_back(std::move(link));
    }
  }
  for (const std::string& kind : words(kKindsOf)) {
    devices.reset();
    BindAll(devices, cluster, kind);
    while (devices.executeStep()) {
      DeviceMeasurement device = ReadDevice(devices, kind);
      if (Sound(device)) profile.devices.push_back(std::move(device));
    }
  }
  return profile;
}

std::vector<std::string> ReadClusters(SQLite::Database& database) {
  std::vector<std::string> clusters;
  SQLite::Statement statement(database, kClusters);
  while (statement.executeStep()) clusters.push_back(statement.getColumn(0).getString());
  return clusters;
}

}  // namespace adaptive_train
