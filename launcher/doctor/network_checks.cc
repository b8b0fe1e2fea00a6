#include "launcher/doctor/network_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/file_io.h"
#include "launcher/steps/local_addresses.h"

namespace adaptive_train {
namespace {

constexpr std::string_view kAll = "all";

std::vector<std::string> Items(const std::string& text) {
  std::vector<std::string> items;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
  return items;
}

/// Network interfaces and RDMA cards.
std::set<std::string> DevicesBelow(const std::string& root) {
  std::set<std::string> names;
  for (const char* kind : {"/sys/class/net", "/sys/class/infiniband"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(root + kind, error), end; !error && entry != end;
         entry.increment(error))
      names.insert(entry->path().filename().string());
  }
  return names;
}

}  // namespace

Finding CheckInterface(const LaunchConfig& launch) {
  const auto addresses = LocalAddresses(launch.interface, "");
  if (addresses)
    return {"launcher's interface", Severity::kGood,
            fmt::format("\"{}\": {} address{}", launch.interface, addresses->size(),
                        addresses->size() == 1 ? "" : "es"),
            "", ""};
  return {"launcher's interface", Severity::kTrouble, addresses.error().message,
          "ranks reach their launcher by an address of it",
          "launch.interface = \"auto\", or one of these, where the setting comes from"};
}

Finding CheckUcxDevices(const std::string& named, const std::string& root) {
  const char* subject = "UCX devices";
  if (named.empty()) return {subject, Severity::kGood, "left to UCX", "", ""};
  const auto devices = DevicesBelow(root);
  for (const std::string& item : Items(named)) {
    const std::string device = item.substr(0, item.find(':'));
    if (device == kAll || devices.contains(device)) continue;
    return {subject, Severity::kTrouble,
            fmt::format("UCX_NET_DEVICES={} names {}, which is not here; there are: {}",
                        Printable(named, 80), Printable(device, 40), fmt::join(devices, ", ")),
            "ranks cannot reach each other by a device that is missing",
            "unset UCX_NET_DEVICES, or name a device of every node"};
  }
  return {subject, Severity::kGood, "UCX_NET_DEVICES=" + Printable(named, 80), "", ""};
}

Finding CheckUcxTransports(const std::string& named) {
  const char* subject = "UCX transports";
  if (named.empty()) return {subject, Severity::kGood, "left to UCX", "", ""};
  constexpr std::array<std::string_view, 6> kBetweenHosts = {"tcp", "rc", "ud", "dc", "ib", "srd"};
  const std::vector<std::string> items = Items(named);
  // "^self,sm" allows all but these.
  const bool reaches =
      named.starts_with('^') || std::ranges::any_of(items, [&](const std::string& item) {
        return item == kAll || std::ranges::any_of(kBetweenHosts, [&](std::string_view transport) {
                 return item == transport || item.starts_with(std::string(transport) + "_");
               });
      });
  if (reaches) return {subject, Severity::kGood, "UCX_TLS=" + Printable(named, 80), "", ""};
  return {subject, Severity::kTrouble,
          fmt::format("UCX_TLS={} has no transport between hosts", Printable(named, 80)),
          "ranks on two nodes cannot reach each other", "unset UCX_TLS, or add tcp to it"};
}

}  // namespace adaptive_train
