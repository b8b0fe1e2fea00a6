#include "spank_plugin/probe/node_probe.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "spank_plugin/probe/gpus.h"
#include "spank_plugin/probe/memory.h"
#include "spank_plugin/probe/nics.h"
#include "spank_plugin/probe/topology.h"

namespace adaptive_train::probe {
namespace {

/// Slurm's name for this node, which may differ from the host's.
std::string NodeName() {
  if (const char* name = std::getenv("SLURMD_NODENAME")) return name;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string_view full = host;
  return std::string(full.substr(0, full.find('.')));
}

/// "prolog" or "user".
std::string Source() {
  const char* context = std::getenv("SLURM_SCRIPT_CONTEXT");
  return context != nullptr && std::string_view(context) == "prolog_slurmd" ? "prolog" : "user";
}

std::string NowInUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

Node TakeSnapshot(const std::function<void(const Node&)>& on_cpu_part) {
  const auto begin = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  Node node;
  node.name = NodeName();
  node.source = Source();
  node.taken_at = NowInUtc();
  ReadTopology(node);
  ReadMemory(node);
  ReadNics(node);
  node.gpus_status.status = "not asked yet";
  node.probe_seconds = spent();
  on_cpu_part(node);
  ReadGpus(node);
  node.probe_seconds = spent();
  return node;
}

}  // namespace adaptive_train::probe
