#include "core/profile.h"

#include <algorithm>
#include <cmath>

#include "core/json_reader.h"
#include "core/json_writer.h"
#include "core/profile_reader.h"

namespace adaptive_train {

static void WriteJson(std::string& to, const Evidence& evidence) {
  JsonObject object(to);
  object.Add("count", evidence.count)
      .Add("spread", evidence.spread)
      .Add("measured_at", evidence.measured_at);
  if (evidence.trust != Trust::kKnown) object.Add("trust", NameOf(evidence.trust));
}

static void WriteJson(std::string& to, const LinkMeasurement& link) {
  JsonObject(to)
      .Add("from", link.from)
      .Add("to", link.to)
      .Add("latency_s", link.latency_s)
      .Add("bytes_per_second", link.bytes_per_second)
      .Add("evidence", link.evidence);
}

static void WriteJson(std::string& to, const DeviceMeasurement& device) {
  JsonObject(to)
      .Add("node", device.node)
      .Add("device_kind", device.device_kind)
      .Add("product_flops", device.product_flops)
      .Add("bytes_per_second", device.bytes_per_second)
      .Add("transfer_s_per_byte", device.transfer_s_per_byte)
      .Add("evidence", device.evidence);
}

static void WriteJson(std::string& to, const LayerMeasurement& layer) {
  JsonObject(to)
      .Add("device_kind", layer.device_kind)
      .Add("model", layer.model)
      .Add("layer", layer.layer)
      .Add("micro_batch", layer.micro_batch)
      .Add("forward_s", layer.forward_s)
      .Add("backward_s", layer.backward_s)
      .Add("weight_gradients_s", layer.weight_gradients_s)
      .Add("update_s", layer.update_s)
      .Add("gradient_variance", layer.gradient_variance)
      .Add("evidence", layer.evidence);
}

static void WriteJson(std::string& to, const CountedFailures& counted) {
  JsonObject(to).Add("kind", NameOf(counted.kind)).Add("count", counted.count);
}

static void WriteJson(std::string& to, const NodeHistory& node) {
  JsonObject(to)
      .Add("node", node.node)
      .Add("failures", node.failures)
      .Add("kinds", node.kinds)
      .Add("within_s", node.within_s)
      .Add("users", node.users)
      .Add("outages", node.outages);
}

static void WriteJson(std::string& to, const LinkHistory& link) {
  JsonObject(to)
      .Add("from", link.from)
      .Add("to", link.to)
      .Add("failures", link.failures)
      .Add("count", link.count)
      .Add("within_s", link.within_s);
}

namespace {

constexpr char kProfileText[] = "profile";
constexpr std::size_t kMaxMeasurements = std::size_t{1} << 24;
constexpr std::int64_t kMaxSamples = std::int64_t{1} << 40;

Evidence ReadEvidence(const JsonReader& entry) {
  const JsonReader part = entry.Part("evidence");
  Evidence evidence;
  part.Read("count", evidence.count, 1, kMaxSamples);
  part.ReadNumber("spread", evidence.spread);
  part.ReadNumber("measured_at", evidence.measured_at);
  if (!part.Has("trust")) return evidence;
  std::string trust;
  part.Read("trust", trust);
  // What a newer store says of a figure is no praise.
  evidence.trust = ChoiceOf<Trust>(trust).value_or(Trust::kDisputed);
  return evidence;
}

LinkMeasurement ReadLinkProfile(const JsonReader& entry) {
  LinkMeasurement link;
  entry.Read("from", link.from);
  entry.Read("to", link.to);
  entry.ReadNumber("latency_s", link.latency_s);
  entry.ReadNumber("bytes_per_second", link.bytes_per_second, false);
  link.evidence = ReadEvidence(entry);
  return link;
}

DeviceMeasurement ReadDeviceProfile(const JsonReader& entry) {
  DeviceMeasurement device;
  if (entry.Has("node")) entry.Read("node", device.node);
  entry.Read("device_kind", device.device_kind);
  entry.ReadNumber("product_flops", device.product_flops, false);
  entry.ReadNumber("bytes_per_second", device.bytes_per_second, false);
  if (entry.Has("transfer_s_per_byte"))
    entry.ReadNumber("transfer_s_per_byte", device.transfer_s_per_byte);
  device.evidence = ReadEvidence(entry);
  return device;
}

LayerMeasurement ReadLayer(const JsonReader& entry) {
  LayerMeasurement layer;
  entry.Read("device_kind", layer.device_kind);
  entry.Read("model", layer.model);
  entry.Read("layer", layer.layer);
  entry.Read("micro_batch", layer.micro_batch, 1, std::int64_t{1} << 31);
  entry.ReadNumber("forward_s", layer.forward_s, false);
  entry.ReadNumber("backward_s", layer.backward_s, false);
  if (entry.Has("weight_gradients_s"))
    entry.ReadNumber("weight_gradients_s", layer.weight_gradients_s);
  entry.ReadNumber("update_s", layer.update_s);
  entry.ReadNumber("gradient_variance", layer.gradient_variance);
  layer.evidence = ReadEvidence(entry);
  return layer;
}

NodeHistory ReadHistory(const JsonReader& entry) {
  NodeHistory node;
  entry.Read("node", node.node);
  entry.ReadNumber("failures", node.failures);
  if (!entry.Has("kinds")) return node;  // of an earlier program
  entry.ReadNumber("within_s", node.within_s);
  if (entry.Has("users")) entry.Read("users", node.users, 1, kMaxSamples);
  if (entry.Has("outages")) entry.Read("outages", node.outages, 0, kMaxSamples);
  entry.ReadList(
      "kinds",
      [&](const JsonReader& one) {
        std::string kind;
        CountedFailures& counted = node.kinds.emplace_back();
        one.Read("kind", kind);
        one.Read("count", counted.count, 1, kMaxSamples);
        if (const auto known = ChoiceOf<FailureKind>(kind))
          counted.kind = *known;
        else
          one.Refuse("kind", "no failure is of this kind");
      },
      NamesOf<FailureKind>().size());
  return node;
}

LinkHistory ReadLinkHistory(const JsonReader& entry) {
  LinkHistory link;
  entry.Read("from", link.from);
  entry.Read("to", link.to);
  entry.ReadNumber("failures", link.failures);
  entry.Read("count", link.count, 1, kMaxSamples);
  entry.ReadNumber("within_s", link.within_s);
  return link;
}

std::string Times(std::int64_t count) {
  return count == 1 ? "once" : count == 2 ? "twice" : fmt::format("{} times", count);
}

std::string InTheLast(double seconds) {
  const double days = std::max(1.0, std::ceil(seconds / 86400));
  return days == 1 ? "in the last day" : fmt::format("in the last {:.0f} days", days);
}

/// "node_silent" is "silent" of a node.
std::string OfANode(FailureKind kind) {
  if (kind == FailureKind::kNodeSilent) return "silent";
  std::string words = NameOf(kind);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

template <>
std::span<const std::string_view> NamesOf<Trust>() {
  static constexpr std::string_view kNames[] = {"known", "unconfirmed", "disputed"};
  return kNames;
}

double Evidence::Confidence(double now) const {
  if (count < 1) return 0;
  const double founded = 1.0 - 0.5 / static_cast<double>(count);
  const double age = std::max(0.0, now - measured_at);
  return founded / (1.0 + 2.0 * spread) * std::exp2(-age / kConfidenceHalfLife);
}

std::string Describe(const NodeHistory& history) {
  if (history.kinds.empty() && history.outages == 0)
    return fmt::format("{}: failed {:.1f} times of late", history.node, history.failures);
  std::string words;
  for (const CountedFailures& counted : history.kinds)
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", OfANode(counted.kind),
                         Times(counted.count));
  if (history.users > 1) words += fmt::format(" in jobs of {} users", history.users);
  if (history.outages > 0)
    words +=
        fmt::format("{}down by Slurm's word {}", words.empty() ? "" : ", ", Times(history.outages));
  return fmt::format("{}: {} {}", history.node, words, InTheLast(history.within_s));
}

std::string Describe(const LinkHistory& history) {
  return fmt::format("link {} to {}: lost {} {}", history.from, history.to, Times(history.count),
                     InTheLast(history.within_s));
}

void WriteJson(std::string& to, const Profile& profile) {
  JsonObject(to)
      .Add("format_version", kFormatVersion)
      .Add("links", profile.links)
      .Add("devices", profile.devices)
      .Add("layers", profile.layers)
      .Add("nodes", profile.nodes)
      .Add("lost_links", profile.lost_links);
}

std::string ToJson(const Profile& profile) { return Indented(JsonOf(profile), 1) + "\n"; }

Profile ReadProfile(const JsonReader& reader) {
  Profile read;
  const auto list = [&](const char* key, auto& out, auto one) {
    reader.ReadList(
        key, [&](const JsonReader& entry) { out.push_back(one(entry)); }, kMaxMeasurements);
  };
  list("links", read.links, ReadLinkProfile);
  list("devices", read.devices, ReadDeviceProfile);
  list("layers", read.layers, ReadLayer);
  list("nodes", read.nodes, ReadHistory);
  if (reader.Has("lost_links")) list("lost_links", read.lost_links, ReadLinkHistory);
  return read;
}

Result<Profile> ProfileFromJson(std::string_view text) {
  return ReadJson<Profile>(text, kProfileText, [](const nlohmann::json& json) -> Result<Profile> {
    std::string error;
    Profile read = ReadProfile(JsonReader(json, "", error));
    if (!error.empty()) return Fail(fmt::format("{}: {}", kProfileText, error));
    return read;
  });
}

}  // namespace adaptive_train
