#include "launcher/steps/local_addresses.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::ip::address;

std::optional<address> AddressOf(const sockaddr* given) {
  if (given == nullptr) return std::nullopt;
  if (given->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, given, sizeof in);
    return asio::ip::address_v4(ntohl(in.sin_addr.s_addr));
  }
  if (given->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in{};
  std::memcpy(&in, given, sizeof in);
  asio::ip::address_v6::bytes_type bytes{};
  std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
  const asio::ip::address_v6 six(bytes);
  // A link-local address means nothing on another host without the name of its interface there.
  if (six.is_link_local()) return std::nullopt;
  return six;
}

/// What the routing table says: connecting a datagram socket sends nothing.
std::optional<address> SourceToward(const std::string& peer) {
  boost::system::error_code error;
  const address to = asio::ip::make_address(peer, error);
  if (error) return std::nullopt;
  asio::io_context io;
  asio::ip::udp::socket socket(io);
  constexpr unsigned short kDiscard = 9;
  socket.connect({to, kDiscard}, error);
  if (error) return std::nullopt;
  const auto from = socket.local_endpoint(error);
  if (error) return std::nullopt;
  return from.address();
}

}  // namespace

Result<std::vector<address>> LocalAddresses(const std::string& interface, const std::string& peer) {
  std::vector<address> outside, loopback;
  std::set<std::string> names;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return Fail(fmt::format("control channel: network interfaces: {}", std::strerror(errno)),
                ExitCode::kPreflight);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto found = AddressOf(entry->ifa_addr);
    if (!found || (entry->ifa_flags & IFF_UP) == 0) continue;
    names.insert(entry->ifa_name);
    if (interface != "auto" && interface != entry->ifa_name) continue;
    (found->is_loopback() ? loopback : outside).push_back(*found);
  }
  std::vector<address> all = std::move(outside);
  all.insert(all.end(), loopback.begin(), loopback.end());
  if (all.empty())
    return Fail(
        fmt::format("launch.interface: \"{}\" is not up or has no address here; there are: {}",
                    interface, fmt::join(names, ", ")),
        ExitCode::kPreflight);
  if (const auto source = SourceToward(peer)) {
    const auto at = std::find(all.begin(), all.end(), *source);
    if (at != all.end()) std::rotate(all.begin(), at, at + 1);
  }
  return all;
}

}  // namespace adaptive_train
