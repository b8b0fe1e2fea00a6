#include "spank_plugin/probe/nics.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <map>
#include <memory>

#include "spank_plugin/probe/small_file.h"

namespace adaptive_train::probe {
namespace {

/// The first IPv4 address of each interface, or else the first IPv6 one.
std::map<std::string, std::string> Addresses() {
  std::map<std::string, std::string> addresses;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      const void* address =
          family == AF_INET ? static_cast<const void*>(
                                  &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr)
                            : &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      char text[INET6_ADDRSTRLEN];
      if (::inet_ntop(family, address, text, sizeof text) != nullptr)
        addresses.emplace(entry->ifa_name, text);
    }
  }
  return addresses;
}

std::string InterfaceKind(const std::string& folder) {
  switch (ReadNumber(folder + "/type").value_or(-1)) {
    case ARPHRD_ETHER:
      return "ethernet";
    case ARPHRD_INFINIBAND:
      return "infiniband";
    default:
      return "other";
  }
}

std::string InterfaceState(const std::string& folder) {
  const auto state = ReadSmallFile(folder + "/operstate");
  return state && (*state == "up" || *state == "down") ? *state : "unknown";
}

void ReadInterfaces(Node& node, const std::string& root) {
  constexpr long long kMegabit = 1'000'000;
  const std::map<std::string, std::string> addresses = Addresses();
  const std::string all = root + "/sys/class/net";
  for (const std::string& name : ListFolder(all)) {
    const std::string folder = Below(all, name);
    // There are plain files like bonding_masters among the interfaces.
    const auto type = ReadNumber(folder + "/type");
    if (!type || *type == ARPHRD_LOOPBACK) continue;
    Nic nic{name,
            InterfaceKind(folder),
            InterfaceState(folder),
            std::nullopt,
            PciAddressOf(folder + "/device"),
            ""};
    // -1, or an error on reading: unknown to the driver.
    if (const auto speed = ReadNumber(folder + "/speed"); speed && *speed > 0)
      nic.bits_per_second = *speed * kMegabit;
    if (const auto address = addresses.find(name); address != addresses.end())
      nic.address = address->second;
    node.nics.push_back(nic);
  }
}

/// One port of an RDMA device. Its rate reads "100 Gb/sec (4X EDR)", its state "4: ACTIVE".
void ReadPort(const std::string& device, const std::string& folder, const std::string& port,
              std::vector<Nic>& nics) {
  const std::string path = folder + "/ports/" + port;
  const std::string link = ReadSmallFile(path + "/link_layer").value_or("");
  const long long state = ReadNumber(path + "/state").value_or(0);
  Nic nic{device, "other", "unknown", std::nullopt, PciAddressOf(folder + "/device"), ""};
  if (port != "1") nic.name += ":" + port;
  if (link == "InfiniBand") nic.kind = "infiniband";
  if (link == "Ethernet") nic.kind = "ethernet";
  if (state > 0) nic.state = state == 4 ? "up" : "down";
  const std::string rate = ReadSmallFile(path + "/rate").value_or("");
  if (const double gigabits = std::strtod(rate.c_str(), nullptr); gigabits > 0 && gigabits < 1e6) {
    nic.bits_per_second = static_cast<std::int64_t>(gigabits * 1e9);
  }
  nics.push_back(nic);
}

}  // namespace

void ReadNics(Node& node, const std::string& root) {
  ReadInterfaces(node, root);
  const std::string rdma = root + "/sys/class/infiniband";
  for (const std::string& device : ListFolder(rdma)) {
    const std::string folder = Below(rdma, device);
    for (const std::string& port : ListFolder(folder + "/ports"))
      ReadPort(device, folder, port, node.nics);
  }
  if (node.nics.empty()) node.nics_status.status = root + "/sys/class/net lists no network card";
}

}  // namespace adaptive_train::probe
