#include "launcher/report/link_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

constexpr double kBitsPerByte = 8;
constexpr std::size_t kMostNameBytes = 40;

/// Three significant digits: 4.93, 49.3, 493.
std::string ThreeFigures(double value) {
  return value < 10 ? fmt::format("{:.2f}", value)
                    : fmt::format("{:.{}f}", value, value < 100 ? 1 : 0);
}

/// n2 before n10: runs of digits compare as numbers.
bool NaturallyLess(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      std::size_t m = i, n = j;
      while (m < a.size() && digit(a[m])) ++m;
      while (n < b.size() && digit(b[n])) ++n;
      while (i + 1 < m && a[i] == '0') ++i;
      while (j + 1 < n && b[j] == '0') ++j;
      if (m - i != n - j) return m - i < n - j;
      const int order = a.compare(i, m - i, b, j, n - j);
      if (order != 0) return order < 0;
      i = m;
      j = n;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j || (a.size() - i == b.size() - j && a < b);
}

/// One square of cells, each column as wide as its widest cell.
std::string Square(const LinkSquare& square, const std::string& corner,
                   const std::function<std::string(const LinkMeasurement&)>& cell) {
  const std::size_t n = square.Size();
  std::vector<std::vector<std::string>> rows(n + 1);
  rows[0] = {corner};
  for (const std::string& name : square.Names()) rows[0].push_back(Printable(name, kMostNameBytes));
  for (std::size_t from = 0; from < n; ++from) {
    rows[from + 1] = {rows[0][from + 1]};
    for (std::size_t to = 0; to < n; ++to) {
      const LinkMeasurement* link = square.At(from, to);
      rows[from + 1].push_back(from == to ? "" : link == nullptr ? "?" : cell(*link));
    }
  }
  std::string text;
  std::vector<std::size_t> widths(n + 1);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i <= n; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i <= n; ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string DeviceLines(const Profile& profile) {
  std::map<std::string, const LinkMeasurement*> inner;
  for (const LinkMeasurement& link : profile.links) {
    if (link.from == link.to) inner[link.from] = &link;
  }
  std::vector<const DeviceMeasurement*> devices;
  for (const DeviceMeasurement& device : profile.devices) devices.push_back(&device);
  std::stable_sort(devices.begin(), devices.end(),
                   [](const auto* a, const auto* b) { return NaturallyLess(a->node, b->node); });
  std::string text;
  for (const DeviceMeasurement* device : devices) {
    text += fmt::format("{}: {} GFLOP/s, copies {} GB/s",
                        device->node.empty() ? "any node" : Printable(device->node, kMostNameBytes),
                        ThreeFigures(device->product_flops / 1e9),
                        ThreeFigures(device->bytes_per_second / 1e9));
    if (const auto link = inner.find(device->node); link != inner.end())
      text += fmt::format(", {} between threads", ShownLatency(link->second->latency_s));
    text += fmt::format(" ({})\n", Printable(device->device_kind, 100));
  }
  return text;
}

}  // namespace

std::string ShownRate(double bytes_per_second) {
  const double bits = bytes_per_second * kBitsPerByte;
  return bits < 0.9995e9 ? ThreeFigures(bits / 1e6) + " Mbit/s"
                         : ThreeFigures(bits / 1e9) + " Gbit/s";
}

std::string ShownLatency(double seconds) {
  return seconds < 0.9995e-3 ? ThreeFigures(seconds * 1e6) + " us"
                             : ThreeFigures(seconds * 1e3) + " ms";
}

LinkSquare::LinkSquare(const Profile& profile) {
  std::set<std::string> names;
  for (const LinkMeasurement& link : profile.links) names.insert({link.from, link.to});
  names_.assign(names.begin(), names.end());
  std::sort(names_.begin(), names_.end(), NaturallyLess);
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < names_.size(); ++i) places[names_[i]] = i;
  links_.assign(names_.size() * names_.size(), nullptr);
  for (const LinkMeasurement& link : profile.links) {
    if (link.from != link.to) links_[places[link.from] * names_.size() + places[link.to]] = &link;
  }
}

std::string MarksOf(const LinkMeasurement& link, double now) {
  const Evidence& evidence = link.evidence;
  const bool again =
      evidence.Confidence(now) < kFreshConfidence || evidence.trust == Trust::kDisputed;
  return std::string(again ? "*" : "") + (evidence.spread > kMarkedSpread ? "~" : "") +
         (evidence.trust == Trust::kUnconfirmed ? "^" : "");
}

std::string RenderLinkTable(const Profile& profile, double now) {
  const LinkSquare square(profile);
  double fastest = 0;
  std::string marks;
  for (const LinkMeasurement& link : profile.links) {
    if (link.from == link.to) continue;
    fastest = std::max(fastest, link.bytes_per_second);
    marks += MarksOf(link, now);
  }
  // One unit for all cells, so that they can be compared at a glance.
  const bool giga = fastest * kBitsPerByte >= 1e10;
  const double unit = giga ? 1e9 : 1e6;
  std::string text;
  if (square.Size() > 1) {
    text += Square(square, giga ? "Gbit/s" : "Mbit/s", [&](const LinkMeasurement& link) {
      return ThreeFigures(link.bytes_per_second * kBitsPerByte / unit) + MarksOf(link, now);
    });
    text += '\n';
    text += Square(square, "us",
                   [](const LinkMeasurement& link) { return ThreeFigures(link.latency_s * 1e6); });
    text += "rows: from, columns: to; us: one way\n";
    if (marks.find('*') != std::string::npos)
      text += "*: old, ill founded or disputed between users; a job measures it again\n";
    if (marks.find('~') != std::string::npos) text += "~: wavered while it was measured\n";
    if (marks.find('^') != std::string::npos)
      text += "^: measured by one or two other users alone; a job checks it\n";
  }
  const std::string devices = DeviceLines(profile);
  if (!text.empty() && !devices.empty()) text += "\n";
  return text + devices;
}

}  // namespace adaptive_train
