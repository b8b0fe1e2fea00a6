#include "launcher/nodes/node_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "core/file_io.h"
#include "core/job_env.h"
#include "core/json_reader.h"
#include "core/launch_settings.h"
#include "core/limits.h"
#include "core/node_reader.h"
#include "launcher/nodes/memory_limits.h"
#include "launcher/nodes/own_cpus.h"
#include "launcher/steps/child_process.h"
#include "launcher/steps/slurm_step.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr const char* kTokenFile = "/.adaptive-train-shared";
constexpr std::chrono::seconds kProbeAsUserDeadline{10};
constexpr int kMostGpus = 1024;

/// The last line that is a complete snapshot: the probe prints more as it learns more.
Result<Node> LastSnapshot(const std::string& text, const std::string& where) {
  Result<Node> best = Fail(where + ": no snapshot in it", ExitCode::kPreflight);
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    auto node = NodeFromJson(line);
    if (node) {
      best = std::move(node);
    } else if (!best) {
      best = Fail(where + ": " + node.error().message, ExitCode::kPreflight);
    }
  }
  return best;
}

/// The prolog's snapshot; the error says why there is none.
Result<Node> FromProlog(const NodeCheckRequest& request) {
  if (request.job_id == 0) return Fail("not in a Slurm job");
  const std::string path = SnapshotPath(static_cast<std::uint32_t>(request.job_id));
  // Slurm starts the batch script after the first node's prolog; others may still be running.
  const auto until =
      std::chrono::steady_clock::now() + (request.prolog_expected ? kProbeDeadline : 0ms);
  while (::access(path.c_str(), R_OK) != 0 && std::chrono::steady_clock::now() < until)
    ::usleep(20'000);
  auto text = ReadFile(path, kMaxSnapshotBytes);
  if (!text) return tl::unexpected(text.error());
  auto node = NodeFromJson(*text);
  if (!node) return LastSnapshot(*text, path);
  return node;
}

std::string RunDirTrouble(const NodeCheckRequest& request) {
  if (request.run_dir.empty()) return "";
  auto token = ReadFile(request.run_dir + kTokenFile, 4096);
  if (!token) return "run folder not shared: " + token.error().message;
  if (*token != request.token)
    return "run folder not shared: " + request.run_dir + " is another folder here";
  if (::access((request.run_dir + "/logs").c_str(), W_OK) != 0)
    return fmt::format("run folder not writable: {}/logs: {}", request.run_dir,
                       std::strerror(errno));
  return "";
}

/// Slurm's "s0.s1.n3": the switches from the top down, then the node.
std::vector<std::string> SwitchesOf(const std::string& address) {
  std::vector<std::string> names;
  std::stringstream parts(address);
  for (std::string part; std::getline(parts, part, '.');) names.push_back(Printable(part, 100));
  if (!names.empty()) names.pop_back();
  return names;
}

std::string DataTrouble(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fmt::format("data not readable: {}: {}", path, std::strerror(errno));
  ::close(fd);
  return "";
}

/// The answers in the order of the hosts. Lines are "TASK: text", with tasks mixed in any order.
/// Text before a task's first "{" is a login banner.
Result<std::vector<NodeCheck>> InOrder(const Allocation& allocation, const std::string& lines) {
  std::vector<NodeCheck> checks(allocation.hosts.size());
  std::vector<bool> seen(checks.size());
  std::map<std::string, std::string> documents;
  std::stringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string& document = documents[line.substr(0, colon)];
    const std::string text = line.substr(colon + 2);
    if (!document.empty() || text == "{") document += text + "\n";
  }
  for (const auto& [task, document] : documents) {
    auto check = NodeCheckFromJson(document);
    if (!check) return tl::unexpected(Error{check.error().message, ExitCode::kPreflight});
    for (std::size_t i = 0; i < checks.size(); ++i) {
      if (allocation.hosts[i] != check->node.name) continue;
      checks[i] = *check;
      seen[i] = true;
    }
  }
  for (std::size_t i = 0; i < checks.size(); ++i) {
    if (!seen[i])
      return Fail("node " + allocation.hosts[i] + " gave no answer in the short step",
                  ExitCode::kPreflight);
  }
  return checks;
}

/// A prolog may run where the job may not.
void KeepOwnCpus(const OwnCpus& own, Processors& processors) {
  if (own.threads == 0) return;
  processors.allowed_cores = std::min(processors.allowed_cores, own.cores);
  processors.allowed_threads = std::min(processors.allowed_threads, own.threads);
}

/// Leaves those whose numbers are in `list`, as Slurm writes it: "0,3". The probe in a prolog sees
/// those of other jobs as well.
void KeepGpus(const std::string& list, std::vector<Gpu>& gpus) {
  std::set<int> own;
  std::istringstream numbers(list);
  for (std::string number; std::getline(numbers, number, ',');)
    own.insert(std::atoi(number.c_str()));
  std::erase_if(gpus, [&own](const Gpu& gpu) { return !own.contains(gpu.index); });
}

}  // namespace

Result<Node> RunProbe(const std::string& probe) {
  auto done = RunCommand({{probe}, std::nullopt, ""}, kProbeAsUserDeadline, 4 * kMaxSnapshotBytes);
  if (!done) return tl::unexpected(done.error());
  if (!done->Ok() && done->output.empty()) {
    return Fail(
        fmt::format("{}: {} {}", probe, DescribeExit(done->wait_status), Printable(done->errors)),
        ExitCode::kPreflight);
  }
  return LastSnapshot(done->output, probe);
}

NodeCheck CheckThisNode(const NodeCheckRequest& request, const std::string& probe,
                        const std::string& root) {
  NodeCheck check;
  auto snapshot = FromProlog(request);
  if (snapshot) {
    check.node = std::move(*snapshot);
    check.node.source = "prolog";
  } else {
    const std::string why = snapshot.error().message;
    snapshot = RunProbe(probe);
    if (snapshot) check.node = std::move(*snapshot);
    if (!snapshot) check.trouble.push_back("no snapshot: " + snapshot.error().message);
    check.node.source = "user";
    if (request.job_id != 0)
      check.note = "no snapshot from the prolog (" + why + "); probed as the user";
  }
  // Slurm's name for this node, whatever the host calls itself.
  if (const char* name = std::getenv("SLURMD_NODENAME"); name != nullptr) check.node.name = name;
  if (check.node.name.empty()) check.node.name = "this node";
  if (const char* address = std::getenv("SLURM_TOPOLOGY_ADDR"); address != nullptr)
    check.node.switches = SwitchesOf(address);
  KeepOwnCpus(FindOwnCpus(root), check.node.processors);
  check.node.memory.limits.clear();  // unknown to a probe
  if (auto limit = ControlGroupLimit(root)) check.node.memory.limits.push_back(std::move(*limit));
  if (const char* gpus = std::getenv("SLURM_GPUS_ON_NODE"); gpus != nullptr)
    check.job_gpus = std::clamp(std::atoi(gpus), 0, kMostGpus);
  // A job that asked for none gets none, also where nothing keeps it from others'.
  if (const char* gpus = std::getenv("SLURM_STEP_GPUS"); gpus != nullptr || request.job_id != 0)
    KeepGpus(gpus == nullptr ? "" : gpus, check.node.gpus);
  if (auto trouble = RunDirTrouble(request); !trouble.empty()) check.trouble.push_back(trouble);
  for (const std::string& path : request.readable) {
    if (auto trouble = DataTrouble(path); !trouble.empty()) check.trouble.push_back(trouble);
  }
  return check;
}

std::string ToJson(const NodeCheck& check) {
  constexpr std::size_t kShort = 600;  // bytes; srun forwards lines of up to 1024 in one piece
  std::vector<std::string> trouble;
  for (const std::string& line : check.trouble) trouble.push_back(Printable(line, kShort));
  const nlohmann::ordered_json json = {
      {"format_version", kFormatVersion},
      {"name", check.node.name},
      {"snapshot", nlohmann::ordered_json::parse(ToJson(check.node))},
      {"job_gpus", check.job_gpus},
      {"note", Printable(check.note, kShort)},
      {"trouble", trouble}};
  return json.dump(0, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<NodeCheck> NodeCheckFromJson(std::string_view text) {
  return ReadJson<NodeCheck>(
      text, "node check", [](const nlohmann::json& json) -> Result<NodeCheck> {
        NodeCheck check;
        std::string error, no_snapshot, name;
        const JsonReader reader(json, "", error);
        reader.Read("name", name);
        reader.ReadAnyText("note", check.note);
        reader.Read("job_gpus", check.job_gpus, 0, kMostGpus);
        reader.ReadTexts("trouble", check.trouble);
        if (!reader.Has("snapshot")) reader.Refuse("snapshot", "missing");
        if (!error.empty()) return Fail("node check: " + error);
        // Without a snapshot only the name and the trouble count.
        Node node = ReadNode(JsonReader(json["snapshot"], "snapshot", no_snapshot));
        if (!no_snapshot.empty() && check.trouble.empty())
          return Fail("node check: " + no_snapshot);
        if (no_snapshot.empty()) check.node = std::move(node);
        check.node.name = name;
        return check;
      });
}

Result<std::vector<NodeCheck>> CheckAllNodes(const Allocation& allocation, NodeCheckRequest request,
                                             const std::string& self, const std::string& probe) {
  request.token = fmt::format("{:08x}{:08x}", std::random_device{}(), std::random_device{}());
  const std::string token_path = request.run_dir + kTokenFile;
  if (!request.run_dir.empty()) {
    auto written = WriteFile(token_path, request.token);
    if (!written) return tl::unexpected(written.error());
  }
  Result<std::vector<NodeCheck>> checks;
  if (allocation.in_slurm) {
    std::vector<std::string> command = {
        self, "node-check", "--job", std::to_string(request.job_id), "--token", request.token};
    if (!request.run_dir.empty()) command.insert(command.end(), {"--run-dir", request.run_dir});
    if (request.prolog_expected) command.push_back("--prolog-expected");
    for (const std::string& path : request.readable)
      command.insert(command.end(), {"--readable", path});
    auto lines = RunOnEveryHost(allocation.hosts.size(), command,
                                DeadlinesOf(request.launch, allocation.hosts.size()).short_step);
    checks = lines ? InOrder(allocation, *lines)
                   : Result<std::vector<NodeCheck>>(tl::unexpected(lines.error()));
  } else {
    checks = std::vector<NodeCheck>{CheckThisNode(request, probe)};
  }
  if (!request.run_dir.empty()) ::unlink(token_path.c_str());
  if (const auto signal = PendingStopSignal()) return tl::unexpected(StoppedBy(*signal));
  if (!checks) return checks;
  std::string trouble;
  for (const NodeCheck& check : *checks) {
    for (const std::string& line : check.trouble)
      trouble += (trouble.empty() ? "" : "; ") + check.node.name + ": " + line;
  }
  if (!trouble.empty()) return Fail(trouble, ExitCode::kPreflight);
  return checks;
}

}  // namespace adaptive_train
