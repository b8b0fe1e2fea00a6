#include "launcher/commands/probe.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "launcher/commands/outcome.h"
#include "launcher/nodes/node_check.h"
#include "launcher/steps/job_step.h"
#include "launcher/steps/lost_host.h"
#include "launcher/steps/programs.h"

namespace adaptive_train {
namespace {

constexpr double kGiB = 1 << 30;

constexpr const char* kProbeFooter = R"(Examples:
  adaptive-train probe
  adaptive-train probe --json | jq .processors
  srun -N4 --ntasks-per-node=1 adaptive-train probe)";

void PrintProcessors(const Node& node) {
  const Processors& p = node.processors;
  fmt::print(
      "processor  {} ({}), {} package{}, {} NUMA node{}, {} cores, {} threads; this process may "
      "use {} cores, {} threads",
      p.model, p.isa, p.packages, p.packages == 1 ? "" : "s", p.numa_nodes,
      p.numa_nodes == 1 ? "" : "s", p.cores, p.threads, p.allowed_cores, p.allowed_threads);
  fmt::print("{}\n", p.quota_cpus ? fmt::format(", quota {:.2f} CPUs", *p.quota_cpus) : "");
  for (const Cache& cache : p.caches)
    fmt::print("cache      L{}: {} x {} KiB\n", cache.level, cache.instances, cache.bytes / 1024);
}

std::string Speed(const Nic& nic) {
  return nic.bits_per_second
             ? fmt::format("{:.3g} Gbit/s", static_cast<double>(*nic.bits_per_second) / 1e9)
             : "speed unknown";
}

/// For people, one line per thing. A missing part gives its reason.
void Print(const Node& node) {
  fmt::print("node       {} ({}, {:.0f} ms)\n", node.name, node.taken_at, 1e3 * node.probe_seconds);
  if (node.processors_status.Ok()) PrintProcessors(node);
  if (node.memory_status.Ok())
    fmt::print("memory     {:.1f} GiB, {:.1f} GiB available\n",
               static_cast<double>(node.memory.total_bytes) / kGiB,
               static_cast<double>(node.memory.available_bytes) / kGiB);
  for (const Nic& nic : node.nics)
    fmt::print("network    {}: {}, {}, {}{}{}\n", nic.name, nic.kind, nic.state, Speed(nic),
               nic.address.empty() ? "" : ", ", nic.address);
  for (const PciDevice& d : node.pci)
    fmt::print("pci        {} {} {}\n", d.address, d.kind, d.name);
  for (const Gpu& g : node.gpus) {
    fmt::print("gpu        {}: {}, {:.1f} GiB, {}, {}, {} NVLink{}\n", g.index, g.model,
               static_cast<double>(g.memory_bytes) / kGiB, g.pci, g.uuid, g.nvlink_peers.size(),
               g.nvlink_peers.size() == 1 ? "" : "s");
  }
  const std::pair<const char*, const PartStatus*> parts[] = {{"processor", &node.processors_status},
                                                             {"memory", &node.memory_status},
                                                             {"network", &node.nics_status},
                                                             {"pci", &node.pci_status},
                                                             {"gpu", &node.gpus_status}};
  for (const auto& [name, status] : parts) {
    if (!status->Ok()) fmt::print("{:<11}missing: {}\n", name, status->status);
  }
}

int RunProbeCommand(bool json) {
  auto programs = FindPrograms();
  if (!programs) return ReportError("probe", programs.error());
  auto node = RunProbe(programs->probe);
  if (!node) return ReportError("probe", node.error());
  if (json) {
    fmt::print("{}\n", ToJson(*node));
  } else {
    Print(*node);
  }
  return 0;
}

}  // namespace

void AddProbeCommand(CLI::App& app, std::function<int()>& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* probe = app.add_subcommand(
      "probe", "Show what this node has: processors, memory, network, PCI, GPUs");
  probe->footer(kProbeFooter);
  probe->add_flag("--json", *json, "One JSON document instead of lines for people");
  probe->callback([json, &chosen] { chosen = [json] { return RunProbeCommand(*json); }; });
}

void AddNodeCheckCommand(CLI::App& app, std::function<int()>& chosen) {
  auto request = std::make_shared<NodeCheckRequest>();
  CLI::App* check = app.add_subcommand(
      "node-check", "What `run` starts on every node before the first step; prints JSON");
  check->group("");  // hidden from the help: not for people
  check->add_option("--job", request->job_id)->required();
  check->add_option("--run-dir", request->run_dir);
  check->add_option("--token", request->token)->required();
  check->add_flag("--prolog-expected", request->prolog_expected);
  check->add_option("--readable", request->readable);
  check->callback([request, &chosen] {
    chosen = [request] {
      auto programs = FindPrograms();
      if (!programs) return ReportError("probe", programs.error());
      fmt::print("{}\n", ToJson(CheckThisNode(*request, programs->probe)));
      return 0;
    };
  });
}

void AddRequeueLostCommand(CLI::App& app, std::function<int()>& chosen) {
  struct Request {
    std::int64_t job = 0;
    std::string host;
  };
  auto request = std::make_shared<Request>();
  CLI::App* lost = app.add_subcommand(
      "requeue-lost",
      "What a rank becomes that has lost its launcher: requeues the job if need be");
  lost->group("");  // hidden from the help: not for people
  lost->add_option("--job", request->job)->required();
  lost->add_option("--host", request->host)->required();
  lost->callback([request, &chosen] {
    chosen = [request] { return RequeueIfLost(request->job, request->host); };
  });
}

void AddLocalStepCommand(CLI::App& app, std::function<int()>& chosen) {
  auto request = std::make_shared<LocalStepRequest>();
  CLI::App* step =
      app.add_subcommand("local-step", "What `run` starts without Slurm: the ranks and their PMIx");
  step->group("");  // hidden from the help: not for people
  step->add_option("--ranks", request->ranks)->required();
  step->add_option("--run-dir", request->run_dir)->required();
  step->add_option("--worker", request->worker)->required();
  step->add_option("--mode", request->mode);
  step->add_option("--pmix-folder", request->pmix_folder)->required();
  step->callback([request, &chosen] { chosen = [request]() -> int { RunLocalStep(*request); }; });
}

}  // namespace adaptive_train
