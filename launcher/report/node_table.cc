#include "launcher/report/node_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/file_io.h"
#include "core/format_version.h"
#include "core/json_writer.h"
#include "launcher/report/link_table.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kShownNameBytes = 40, kShownKindBytes = 32;

/// "3 hours": how long ago, in the largest unit of which there are two or more.
std::string Ago(double seconds) {
  struct Span {
    double seconds;
    const char* name;
  };
  constexpr Span kSpans[] = {{86400, "days"}, {3600, "hours"}, {60, "minutes"}, {1, "seconds"}};
  for (const Span& unit : kSpans)
    if (seconds >= 2 * unit.seconds)
      return fmt::format("{:.0f} {}", std::floor(seconds / unit.seconds), unit.name);
  return "now";
}

using Row = std::array<std::string, 8>;

Row RowOf(const NodeStanding& node, double now) {
  Row row = {Printable(node.node, kShownNameBytes)};
  if (!node.devices.empty()) {
    const auto& [measured, of_kind] = *std::ranges::max_element(
        node.devices, {}, [](const auto& device) { return device.measured.evidence.measured_at; });
    const std::size_t others = node.devices.size() - 1;
    row[1] = Printable(measured.device_kind, kShownKindBytes) +
             (others > 0 ? fmt::format(" and {} more", others) : "");
    row[2] = fmt::format("{:.4g}", measured.product_flops / 1e9);
    if (of_kind > 0) row[3] = fmt::format("{:.0f} %", 100 * of_kind);
  }
  if (node.bytes_per_second > 0) row[4] = ShownRate(node.bytes_per_second);
  const double failures = node.failures.failures + node.lost_links;
  if (failures > 0) row[5] = fmt::format("{:.1f}", failures);
  if (node.last_seen > 0) row[6] = Ago(now - node.last_seen);
  row[7] = Printable(node.why, 200);
  return row;
}

}  // namespace

static void WriteJson(std::string& to, const NodeStanding::MeasuredDevice& device) {
  JsonObject object(to);
  object.Add("device_kind", device.measured.device_kind)
      .Add("product_flops", device.measured.product_flops)
      .Add("bytes_per_second", device.measured.bytes_per_second)
      .Add("trust", NameOf(device.measured.evidence.trust));
  if (device.of_kind > 0) object.Add("of_kind", device.of_kind);
}

static void WriteJson(std::string& to, const NodeStanding& node) {
  JsonObject object(to);
  object.Add("node", node.node).Add("devices", node.devices);
  if (node.bytes_per_second > 0) object.Add("bytes_per_second", node.bytes_per_second);
  if (node.failures.failures > 0) object.Add("failures", Describe(node.failures));
  object.Add("failures_weight", node.failures.failures).Add("lost_links_weight", node.lost_links);
  if (node.last_seen > 0) object.Add("last_seen", node.last_seen);
  object.Add("why_spare", node.why);
}

std::string RenderNodeTable(const std::vector<NodeStanding>& nodes, double now) {
  std::vector<Row> rows = {{"Node", "Device", "GFLOP/s", "Of kind", "Links", "Failures", "Measured",
                            "Why it would be a spare"}};
  for (const NodeStanding& node : nodes) rows.push_back(RowOf(node, now));
  std::array<std::size_t, 8> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i >= 2 && i <= 6 ? fmt::format("{:>{}}  ", row[i], widths[i])
                               : fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string RenderNodesJson(const std::string& cluster, const std::vector<NodeStanding>& nodes) {
  std::string text;
  JsonObject(text)
      .Add("format_version", kFormatVersion)
      .Add("cluster", cluster)
      .Add("nodes", nodes);
  return Indented(text, 1) + "\n";
}

}  // namespace adaptive_train
