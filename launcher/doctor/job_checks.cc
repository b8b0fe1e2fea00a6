#include "launcher/doctor/job_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "core/file_io.h"
#include "core/launch_settings.h"
#include "launcher/doctor/node_ports.h"
#include "launcher/steps/local_addresses.h"
#include "launcher/steps/programs.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

using boost::asio::ip::tcp;

/// Clocks that a time service keeps are milliseconds apart; in seconds.
constexpr double kClocksApart = 2;

/// $0: a port, $@: addresses of the host that listens there. A firewall that drops is waited for.
constexpr const char* kReach =
    "for address in \"$@\"; do"
    " timeout 3 bash -c 'exec 3<>\"/dev/tcp/$0/$1\"' \"$address\" \"$0\" 2>&- && exec echo reached;"
    " done; echo missed";
constexpr const char* kVersions =
    "driver=$(cat /sys/module/nvidia/version 2>&-);"
    " library=$(PATH=$PATH:/sbin ldconfig -p 2>&- | sed -n 's/.*libnccl[.]so[.]2 .*=> //p' |"
    " head -n 1);"
    " nccl=$(readlink -f \"$library\" | sed -n 's/.*libnccl[.]so[.]//p');"
    " echo \"${driver:--} ${nccl:--}\"";

/// A port that other hosts may connect to, which the kernel answers for us.
Result<tcp::acceptor> ListenOn(boost::asio::io_context& io, const PortRange& ports) {
  for (int port = ports.first;; ++port) {
    auto acceptor = ListenAt(io, port);
    if (acceptor || port >= ports.last || acceptor.error().system_error != EADDRINUSE)
      return acceptor;
  }
}

/// What each host has said, by its place in the job.
std::map<std::size_t, std::string> WordsOfHosts(const std::string& lines) {
  std::map<std::size_t, std::string> words;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    std::size_t task = 0;
    const char* const begin = line.data() + std::min(line.find_first_not_of(' '), line.size());
    const auto [end, error] = std::from_chars(begin, line.data() + line.size(), task);
    if (error == std::errc() && std::string_view(end).starts_with(": ")) words[task] = end + 2;
  }
  return words;
}

Finding PortTrouble(const std::string& what) {
  return {"ports", Severity::kTrouble, what,
          "ranks connect to their launcher at such a port, and to each other at others",
          "allow TCP between the nodes (launch.ports limits the launcher's ports), or name the "
          "network that they share with launch.interface"};
}

Finding StepTrouble(const char* subject, const Error& error) {
  return {subject, Severity::kTrouble, error.message, "a run starts its ranks by such steps",
          "as the line says"};
}

}  // namespace

std::vector<std::string> HostsThatMissed(const std::string& lines,
                                         const std::vector<std::string>& hosts) {
  const auto words = WordsOfHosts(lines);
  std::vector<std::string> missed;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto said = words.find(i);
    if (said == words.end() || said->second != "reached") missed.push_back(hosts[i]);
  }
  return missed;
}

std::vector<std::string> PairsThatMissed(const std::string& lines,
                                         const std::vector<std::string>& hosts) {
  const auto words = WordsOfHosts(lines);
  std::vector<std::string> pairs;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto said = words.find(i);
    const std::string text = said == words.end() ? "says nothing" : said->second;
    std::istringstream stream(text);
    std::string word;
    stream >> word;
    if (word == "reached") continue;
    std::size_t other = 0;
    if (word != "missed") pairs.push_back(hosts[i] + ": " + Printable(text, 100));
    while (word == "missed" && stream >> other)
      if (other < hosts.size()) pairs.push_back(hosts[i] + " to " + hosts[other]);
  }
  return pairs;
}

namespace {

/// What each task of a step with `words` of `adaptive-train node-ports` says.
Result<std::string> NodePorts(std::vector<std::string> words, const LaunchConfig& launch,
                              const Allocation& allocation) {
  const auto programs = FindPrograms();
  if (!programs) return tl::unexpected(programs.error());
  words.insert(words.begin(), {programs->self, "node-ports"});
  return RunOnEveryHost(allocation.hosts.size(), words,
                        DeadlinesOf(launch, allocation.hosts.size()).short_step);
}

/// A few of them, and how many more there are.
std::string Few(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 6;
  if (names.size() <= kShown) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kShown, ", "),
                     names.size() - kShown);
}

bool IsAddress(const std::string& text) {
  boost::system::error_code error;
  boost::asio::ip::make_address(text.substr(0, text.find(',')), error);
  return !error;
}

/// A port that something on another node has, and no launcher would need there.
Finding BusyPort(const std::string& port, const std::vector<std::string>& busy) {
  return {"ports", Severity::kNote, fmt::format("port {} is in use on {}", port, Few(busy)),
          "whether other nodes reach these is not known",
          "call doctor again, or with other ports in launch.ports"};
}

/// After each has reached this host. `port` is one of launch.ports.
Finding CheckPairs(const std::string& port, const LaunchConfig& launch,
                   const Allocation& allocation) {
  const auto told = NodePorts({"addresses", launch.interface}, launch, allocation);
  if (!told) return StepTrouble("ports", told.error());
  const auto addresses = WordsOfHosts(*told);
  std::vector<std::string> words = {"reach", port};
  for (std::size_t i = 0; i < allocation.hosts.size(); ++i) {
    const auto said = addresses.find(i);
    if (said == addresses.end())
      return PortTrouble(allocation.hosts[i] + " does not tell its addresses");
    if (!IsAddress(said->second))
      return PortTrouble(allocation.hosts[i] + ": " + Printable(said->second, 200));
    words.push_back(said->second);
  }
  const auto lines = NodePorts(std::move(words), launch, allocation);
  if (!lines) return StepTrouble("ports", lines.error());
  const auto missed = PairsThatMissed(*lines, allocation.hosts);
  std::vector<std::string> busy, apart;
  for (const std::string& host : allocation.hosts)
    if (std::ranges::any_of(
            missed, [&](const std::string& one) { return one.starts_with(host + ": busy: "); }))
      busy.push_back(host);
  std::ranges::copy_if(missed, std::back_inserter(apart), [&](const std::string& one) {
    return std::ranges::none_of(busy, [&](const std::string& host) {
      return one.starts_with(host + ": ") || one.ends_with(" to " + host);
    });
  });
  if (!apart.empty())
    return PortTrouble(fmt::format("nodes do not connect at port {}: {}", port, Few(apart)));
  if (!busy.empty()) return BusyPort(port, busy);
  return {"ports", Severity::kGood,
          fmt::format("{} nodes connect to port {} of this host, and of each other",
                      allocation.hosts.size(), port),
          "", ""};
}

}  // namespace

Finding CheckPorts(const LaunchConfig& launch, const Allocation& allocation) {
  const auto ports = ParsePorts(launch.ports);
  const auto addresses = LocalAddresses(launch.interface, "");
  if (!ports) return PortTrouble(ports.error().message);
  if (!addresses) return PortTrouble(addresses.error().message);
  boost::asio::io_context io;
  auto acceptor = ListenOn(io, *ports);
  if (!acceptor) return PortTrouble(acceptor.error().message);
  const std::string port = std::to_string(acceptor->local_endpoint().port());
  std::vector<std::string> command = {"bash", "-c", kReach, port}, others;
  for (const auto& address : *addresses)
    if (!address.is_loopback()) others.push_back(address.to_string());
  command.insert(command.end(), others.begin(), others.end());
  const auto lines = RunOnEveryHost(allocation.hosts.size(), command,
                                    DeadlinesOf(launch, allocation.hosts.size()).short_step);
  if (!lines) return StepTrouble("ports", lines.error());
  const auto missed = HostsThatMissed(*lines, allocation.hosts);
  if (!missed.empty())
    return PortTrouble(fmt::format("{} did not connect to port {} of this host at {}", Few(missed),
                                   port, fmt::join(others, ", ")));
  acceptor->close();  // this host may be one of the nodes
  return CheckPairs(port, launch, allocation);
}

Finding GpuVersionsAlike(const std::string& lines, const std::vector<std::string>& hosts) {
  std::map<std::string, std::vector<std::string>> by_versions;
  const auto words = WordsOfHosts(lines);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto said = words.find(i);
    std::istringstream stream(said == words.end() ? "" : said->second);
    std::string driver = "-", nccl = "-";
    stream >> driver >> nccl;
    const std::string name =
        driver == "-" ? "no NVIDIA driver"
                      : fmt::format("driver {}, {}", Printable(driver, 40),
                                    nccl == "-" ? "no NCCL" : "NCCL " + Printable(nccl, 40));
    by_versions[name].push_back(hosts[i]);
  }
  std::string what;
  for (const auto& [name, with] : by_versions)
    what += fmt::format("{}{} on {}", what.empty() ? "" : "; ", name, fmt::join(with, ", "));
  if (by_versions.size() == 1)
    return {"GPU versions", Severity::kGood,
            fmt::format("{} on all {} nodes", by_versions.begin()->first, hosts.size()), "", ""};
  return {"GPU versions", Severity::kNote, what,
          "GPUs with unlike NCCL share no group of it, and their ranks exchange by the host",
          "the same driver and libnccl on all nodes, or --constraint for like ones"};
}

Finding CheckGpuVersions(const LaunchConfig& launch, const Allocation& allocation) {
  const auto lines = RunOnEveryHost(allocation.hosts.size(), {"bash", "-c", kVersions},
                                    DeadlinesOf(launch, allocation.hosts.size()).short_step);
  if (!lines) return StepTrouble("GPU versions", lines.error());
  return GpuVersionsAlike(*lines, allocation.hosts);
}

Finding ClocksAlike(const std::string& lines, const std::vector<std::string>& hosts,
                    double asked_s) {
  constexpr const char* kSubject = "clocks";
  const auto words = WordsOfHosts(lines);
  std::vector<std::pair<double, std::string>> clocks;
  for (const auto& [place, said] : words) {
    double seconds = 0;
    const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), seconds);
    if (error == std::errc() && place < hosts.size()) clocks.emplace_back(seconds, hosts[place]);
  }
  if (clocks.size() < hosts.size())
    return {kSubject, Severity::kNote,
            fmt::format("{} of {} nodes told their time", clocks.size(), hosts.size()),
            "times of jobs may not compare", "`date` on each node says more"};
  const auto [first, last] = std::ranges::minmax_element(clocks);
  const double apart = last->first - first->first - asked_s;
  if (apart < kClocksApart)
    return {kSubject, Severity::kGood, fmt::format("{} nodes have the same time", hosts.size()), "",
            ""};
  return {kSubject, Severity::kTrouble,
          fmt::format("the clock of {} is {:.0f} s ahead of that of {}", last->second, apart,
                      first->second),
          "munge refuses credentials of hosts whose clocks are minutes apart, and times of jobs do "
          "not compare",
          "systemctl enable --now chronyd (EL) or systemd-timesyncd (Debian) on both"};
}

Finding CheckClocks(const LaunchConfig& launch, const Allocation& allocation) {
  const auto step = TimeOnEveryHost(allocation.hosts.size(), {"date", "+%s.%N"},
                                    DeadlinesOf(launch, allocation.hosts.size()).short_step);
  if (!step) return StepTrouble("clocks", step.error());
  return ClocksAlike(step->output, allocation.hosts, step->seconds);
}

}  // namespace adaptive_train
