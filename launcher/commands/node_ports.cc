#include "launcher/commands/node_ports.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/outcome.h"
#include "launcher/doctor/node_ports.h"

namespace adaptive_train {
namespace {

struct NodePortsArguments {
  std::string interface;
  int port = 0;
  std::vector<std::string> addresses;
};

/// Which task of the step this is; none: no step, or not one of so many tasks.
std::optional<std::size_t> OwnNumber(std::size_t tasks) {
  const char* const text = std::getenv("SLURM_PROCID");
  std::size_t number = 0;
  const std::string_view word = text == nullptr ? "" : text;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || number >= tasks)
    return std::nullopt;
  return number;
}

/// What is wrong on a node is said in its line, too: srun would tell of exit codes instead.
int Say(const Result<std::string>& words) {
  return PrintText("node-ports", (words ? *words : words.error().message) + "\n");
}

int Reach(const NodePortsArguments& arguments) {
  const auto self = OwnNumber(arguments.addresses.size());
  if (!self)
    return ReportError("node-ports",
                       Error{"not in a step of as many tasks as addresses", ExitCode::kUsage});
  return Say(ReachOthers(arguments.port, arguments.addresses, *self));
}

}  // namespace

void AddNodePortsCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<NodePortsArguments>();
  CLI::App* const ports =
      app.add_subcommand("node-ports", "What doctor starts on each node of a job")->group("");
  ports->require_subcommand(1);
  CLI::App* const addresses = ports->add_subcommand("addresses", "This host's addresses");
  addresses->add_option("interface", arguments->interface)->required();
  addresses->callback([arguments, &chosen] {
    chosen = [arguments] { return Say(OwnAddresses(arguments->interface)); };
  });
  CLI::App* const reach = ports->add_subcommand("reach", "Listens, and connects to other tasks");
  reach->add_option("port", arguments->port)->required()->check(CLI::Range(1, 65535));
  reach->add_option("addresses", arguments->addresses, "Of each task")->required();
  reach->callback([arguments, &chosen] { chosen = [arguments] { return Reach(*arguments); }; });
}

}  // namespace adaptive_train
