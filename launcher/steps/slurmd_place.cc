#include "launcher/steps/slurmd_place.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <sstream>

#include "launcher/steps/child_process.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kNameDeadline{5};

/// The word behind "KEY=" in a line of words; empty if there is none.
std::string WordOf(const std::string& line, const std::string& key) {
  const auto at = (" " + line).find(" " + key + "=");
  if (at == std::string::npos) return "";
  const auto begin = at + key.size() + 1;
  return line.substr(begin, line.find_first_of(" \n", begin) - begin);
}

/// A number at the text's beginning; 0 if there is none.
int NumberOf(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

int UsualPort() {
  std::stringstream lines(ShownBySlurm({"show", "config"}));
  for (std::string line; std::getline(lines, line);) {
    const auto digits = line.find_first_of("0123456789");
    if (line.starts_with("SlurmdPort ") && digits != std::string::npos)
      return NumberOf(line.substr(digits));
  }
  return 0;
}

}  // namespace

SlurmdPlaces ParseSlurmds(const std::string& shown, int usual_port) {
  SlurmdPlaces places;
  std::stringstream lines(shown);
  for (std::string line; std::getline(lines, line);) {
    const std::string node = WordOf(line, "NodeName"), name = WordOf(line, "NodeAddr");
    const int port = NumberOf(WordOf(line, "Port"));
    if (!node.empty() && !name.empty()) places[node] = {name, port > 0 ? port : usual_port};
  }
  return places;
}

SlurmdPlaces FindSlurmds(const Plan& plan) {
  std::set<std::string> nodes;
  for (const RankPlan& rank : plan.ranks) nodes.insert(rank.device.node);
  const std::string names = fmt::format("{}", fmt::join(nodes, ","));
  const std::string shown = ShownBySlurm({"show", "node", "-o", names});
  return shown.empty() ? SlurmdPlaces{} : ParseSlurmds(shown, UsualPort());
}

std::string AddressOf(const SlurmdPlace& place) {
  // A program of its own, as a name service that hangs must not hold the launcher.
  auto found = RunCommand({{"getent", "ahosts", place.name}, std::nullopt, ""}, kNameDeadline);
  return found && found->Ok() ? found->output.substr(0, found->output.find_first_of(" \t\n")) : "";
}

bool AnswersAt(const std::string& address, int port, std::chrono::milliseconds patience) {
  namespace asio = boost::asio;
  boost::system::error_code error;
  const auto ip = asio::ip::make_address(address, error);
  if (error) return true;
  asio::io_context io;
  asio::ip::tcp::socket socket(io);
  std::optional<boost::system::error_code> ended;
  socket.async_connect({ip, static_cast<std::uint16_t>(port)},
                       [&](const boost::system::error_code& how) { ended = how; });
  io.run_for(patience);
  return ended && *ended != asio::error::timed_out && *ended != asio::error::host_unreachable &&
         *ended != asio::error::network_unreachable;
}

}  // namespace adaptive_train
