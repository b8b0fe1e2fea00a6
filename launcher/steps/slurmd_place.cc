#include "launcher/steps/slurmd_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <charconv>
#include <cstdint>
#include <deque>
#include <iterator>
#include <set>
#include <sstream>

#include "launcher/steps/child_process.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kNameDeadline{5};

/// The name's addresses, in getent's order.
std::vector<boost::asio::ip::address> AddressesOf(const std::string& name) {
  std::vector<boost::asio::ip::address> addresses;
  if (name.empty()) return addresses;
  // A program of its own, as a name service that hangs must not hold the launcher.
  auto found = RunCommand({{"getent", "ahosts", name}, std::nullopt, ""}, kNameDeadline);
  if (!found || !found->Ok()) return addresses;
  std::stringstream lines(found->output);
  for (std::string line; std::getline(lines, line);) {
    boost::system::error_code error;
    const auto address =
        boost::asio::ip::make_address(line.substr(0, line.find_first_of(" \t")), error);
    if (!error && std::find(addresses.begin(), addresses.end(), address) == addresses.end())
      addresses.push_back(address);
  }
  return addresses;
}

/// The word behind "KEY=" in a line of words; empty if there is none.
std::string WordOf(const std::string& line, const std::string& key) {
  const auto at = (" " + line).find(" " + key + "=");
  if (at == std::string::npos) return "";
  const auto begin = at + key.size() + 1;
  return line.substr(begin, line.find_first_of(" \n", begin) - begin);
}

/// A port at the text's beginning; 0 if there is none.
int PortOf(const std::string& text) {
  int port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port > 0 && port <= 65535 ? port : 0;
}

}  // namespace

SlurmdPlaces ParseSlurmds(const std::string& shown, int usual_port) {
  SlurmdPlaces places;
  std::stringstream lines(shown);
  for (std::string line; std::getline(lines, line);) {
    // What people write comes last, and may look like anything.
    for (const char* free_text : {" Reason=", " Comment=", " Extra="})
      line = line.substr(0, line.find(free_text));
    const std::string node = WordOf(line, "NodeName"), name = WordOf(line, "NodeAddr");
    const int port = PortOf(WordOf(line, "Port"));
    if (!node.empty() && !name.empty()) places[node] = {name, port > 0 ? port : usual_port};
  }
  return places;
}

SlurmdPlaces FindSlurmds(const Plan& plan) {
  std::set<std::string> nodes;
  for (const RankPlan& rank : plan.ranks) nodes.insert(rank.device.node);
  const std::string names = fmt::format("{}", fmt::join(nodes, ","));
  const std::string shown = ShownBySlurm({"show", "node", "-o", names});
  if (shown.empty()) return {};
  auto settings = SlurmSettings();
  return ParseSlurmds(shown, settings ? PortOf((*settings)["SlurmdPort"]) : 0);
}

std::string AddressOf(const SlurmdPlace& place) {
  const auto addresses = AddressesOf(place.name);
  return addresses.empty() ? "" : addresses.front().to_string();
}

std::vector<std::string> SilentAmong(const SlurmdPlaces& places,
                                     std::chrono::milliseconds patience) {
  namespace asio = boost::asio;
  asio::io_context io;
  std::deque<asio::ip::tcp::socket> sockets;
  std::set<std::string> asked, answered;
  for (const auto& [node, place] : places) {
    if (place.port == 0) continue;
    for (const asio::ip::address& address : AddressesOf(place.name)) {
      asked.insert(node);
      sockets.emplace_back(io).async_connect(
          {address, static_cast<std::uint16_t>(place.port)},
          [&answered, &of = node](const boost::system::error_code& how) {
            if (how != asio::error::timed_out && how != asio::error::host_unreachable &&
                how != asio::error::network_unreachable && how != asio::error::operation_aborted)
              answered.insert(of);
          });
    }
  }
  io.run_for(patience);
  std::vector<std::string> silent;
  std::set_difference(asked.begin(), asked.end(), answered.begin(), answered.end(),
                      std::back_inserter(silent));
  return silent;
}

}  // namespace adaptive_train
