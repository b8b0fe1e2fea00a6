#include "launcher/steps/slurm_step.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <optional>
#include <sstream>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kScontrolDeadline{20};
constexpr std::chrono::seconds kPluginDeadline{20};
constexpr std::chrono::seconds kNameDeadline{5};
/// After its step was killed srun may wait for a node that is gone; nobody waits for srun longer
/// than this.
constexpr std::chrono::seconds kSrunGrace{2};

Result<std::string> Scontrol(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "scontrol");
  auto done = RunCommand({arguments, std::nullopt, ""}, kScontrolDeadline);
  if (!done) return tl::unexpected(done.error());
  if (!done->Ok()) {
    return Fail(fmt::format("scontrol {}: {} {}", arguments[1], DescribeExit(done->wait_status),
                            Printable(done->errors)),
                ExitCode::kPreflight);
  }
  return done->output;
}

/// "2", "0-2,4": the task numbers of srun's messages.
std::vector<int> ParseTasks(const std::string& text) {
  std::vector<int> tasks;
  std::stringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    int first = 0, last = 0;
    const auto dash = item.find('-');
    const char* begin = item.data();
    const char* end = begin + item.size();
    if (std::from_chars(begin, end, first).ec != std::errc()) continue;
    last = first;
    if (dash != std::string::npos) std::from_chars(begin + dash + 1, end, last);
    for (int task = first; task <= last && task - first < 65536; ++task) tasks.push_back(task);
  }
  return tasks;
}

/// "srun: error: n3: task 2: Killed", "srun: error: n1: tasks 0-1: Exited with exit code 3".
struct TaskEnd {
  std::vector<int> tasks;
  std::string how;
};

std::optional<TaskEnd> ParseTaskEnd(const std::string& line) {
  const std::string start = "srun: error: ";
  if (line.rfind(start, 0) != 0) return std::nullopt;
  const auto word = line.find(": task", start.size());
  if (word == std::string::npos) return std::nullopt;
  const auto list = line.find(' ', word + 2);
  const auto end = list == std::string::npos ? list : line.find(": ", list);
  if (end == std::string::npos) return std::nullopt;
  return TaskEnd{ParseTasks(line.substr(list + 1, end - list - 1)), line.substr(end + 2)};
}

}  // namespace

FailureKind KindOfSrunsWords(const std::string& how) {
  // strsignal's words, and those of srun itself; " (core dumped)" may follow.
  constexpr std::array<std::string_view, 6> kCrashes = {
      "Segmentation fault",   "Aborted", "Bus error", "Floating point", "Illegal instruction",
      "Trace/breakpoint trap"};
  const auto begins = [&how](std::string_view words) { return how.starts_with(words); };
  if (begins("Out Of Memory")) return FailureKind::kOutOfMemory;
  if (std::any_of(kCrashes.begin(), kCrashes.end(), begins)) return FailureKind::kCrashed;
  constexpr std::string_view kExited = "Exited with exit code ";
  if (!begins(kExited)) return FailureKind::kKilled;
  int code = 0;
  std::from_chars(how.data() + kExited.size(), how.data() + how.size(), code);
  return KindOfExit(code);
}

namespace {

/// A path that srun takes as it is: its file names have patterns such as %t.
std::string WithoutPatterns(const std::string& path) {
  std::string out;
  for (char c : path) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

class SlurmStep final : public JobStep {
 public:
  SlurmStep(ChildProcess srun, std::string log) : srun_(std::move(srun)), log_(std::move(log)) {}
  ~SlurmStep() override {
    if (!Over()) srun_.SignalAlone(SIGKILL);
  }

  void Poll() override {
    status_ = srun_.Poll();
    srun_.ReadOutput();  // the ranks' own output goes to their logs
    errors_ += srun_.ReadErrors();
    for (auto line_end = errors_.find('\n'); line_end != std::string::npos;
         line_end = errors_.find('\n')) {
      Understand(errors_.substr(0, line_end));
      errors_.erase(0, line_end + 1);
    }
    if (kill_deadline_ && std::chrono::steady_clock::now() > *kill_deadline_)
      srun_.SignalAlone(SIGKILL);
  }
  bool Over() const override { return status_.has_value(); }
  std::vector<RankEnd> TakeEnds() override { return std::exchange(ends_, {}); }
  std::string Trouble() const override {
    if (!trouble_.empty()) return trouble_;
    return status_ && *status_ != 0 ? "srun: " + DescribeExit(*status_) : "";
  }

  void Kill(const std::string& step_id) override {
    if (Over() || kill_deadline_) return;
    kill_deadline_ = std::chrono::steady_clock::now() + kSrunGrace;
    // srun itself gives up after two signals without telling a stopped rank; slurmd kills it for
    // scancel.
    if (step_id.empty()) {
      srun_.Signal(SIGTERM);
      return;
    }
    auto scancel = ChildProcess::Start({{"scancel", "--signal=KILL", step_id}, std::nullopt, ""});
    if (scancel) scancel_ = std::move(*scancel);
  }

 private:
  void Understand(const std::string& line) {
    if (auto ended = ParseTaskEnd(line)) {
      for (int task : ended->tasks)
        ends_.push_back({task, ended->how, KindOfSrunsWords(ended->how)});
    } else if (line.rfind("srun: error:", 0) == 0 || line.rfind("slurmstepd: error:", 0) == 0) {
      if (trouble_.empty()) trouble_ = Printable(line);
    }
    // Everything srun says is kept for a person to read.
    std::FILE* file = std::fopen(log_.c_str(), "a");
    if (file == nullptr) return;
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }

  ChildProcess srun_;
  std::optional<ChildProcess> scancel_;
  const std::string log_;
  std::string errors_;
  std::string trouble_;
  std::vector<RankEnd> ends_;
  std::optional<int> status_;
  std::optional<std::chrono::steady_clock::time_point> kill_deadline_;
};

}  // namespace

Environment WithoutInheritedShape(Environment environment) {
  for (const char* name : {"SLURM_NTASKS",
                           "SLURM_NPROCS",
                           "SLURM_NTASKS_PER_NODE",
                           "SLURM_TASKS_PER_NODE",
                           "SLURM_NTASKS_PER_CORE",
                           "SLURM_NTASKS_PER_SOCKET",
                           "SLURM_NTASKS_PER_GPU",
                           "SLURM_NTASKS_PER_TRES",
                           "SLURM_DISTRIBUTION",
                           "SLURM_CPUS_PER_TASK",
                           "SLURM_CPUS_PER_GPU",
                           "SLURM_CPU_BIND",
                           "SLURM_MEM_BIND",
                           "SLURM_MEM_PER_NODE",
                           "SLURM_MEM_PER_CPU",
                           "SLURM_MEM_PER_GPU",
                           "SLURM_TRES_PER_TASK",
                           "SLURM_GRES",
                           "SLURM_GPUS",
                           "SLURM_GPUS_PER_NODE",
                           "SLURM_GPUS_PER_SOCKET",
                           "SLURM_GPUS_PER_TASK",
                           "SLURM_GPU_BIND",
                           "SLURM_HINT",
                           "SLURM_CORE_SPEC",
                           "SLURM_THREAD_SPEC",
                           "SLURM_THREADS_PER_CORE",
                           "SLURM_EXCLUSIVE",
                           "SLURM_SPREAD_JOB",
                           "SLURM_USE_MIN_NODES",
                           "SLURM_HOSTFILE",
                           "SLURM_EXACT",
                           "SLURM_WHOLE",
                           "SLURM_OVERCOMMIT",
                           "SLURM_ARBITRARY_NODELIST",
                           "SLURM_MULTI_PROG",
                           "SLURM_LABELIO",
                           "SLURM_UNBUFFEREDIO",
                           "SLURM_TIMELIMIT",
                           "SLURM_IMMEDIATE",
                           "SLURM_RELATIVE"}) {
    environment.erase(name);
  }
  return environment;
}

bool NamesPlugin(const std::string& list, const std::string& plugin) {
  std::stringstream words(list);
  for (std::string word; words >> word;) {
    if (word == plugin) return true;
  }
  return false;
}

Result<void> CheckPmixPlugin() {
  auto done = RunCommand({{"srun", "--mpi=list"}, std::nullopt, ""}, kPluginDeadline);
  if (!done) return tl::unexpected(Error{done.error().message, ExitCode::kPreflight});
  // Older srun lists on standard error.
  if (NamesPlugin(done->output + "\n" + done->errors, "pmix")) return {};
  return Fail("Slurm has no pmix plugin, by which ranks find each other: srun --mpi=list says: " +
                  Printable(done->output + " " + done->errors, 300),
              ExitCode::kPreflight);
}

std::string AddressOfNode(const std::string& node) {
  auto text = Scontrol({"show", "node", "-o", node});
  if (!text) return "";
  const std::string key = " NodeAddr=";
  const auto at = text->find(key);
  if (at == std::string::npos) return "";
  const auto begin = at + key.size();
  const std::string name = text->substr(begin, text->find(' ', begin) - begin);
  // A program of its own, as a name service that hangs must not hold the launcher.
  auto found = RunCommand({{"getent", "ahosts", name}, std::nullopt, ""}, kNameDeadline);
  return found && found->Ok() ? found->output.substr(0, found->output.find_first_of(" \t\n")) : "";
}

Result<std::vector<std::string>> ExpandHosts(const std::string& node_list) {
  auto text = Scontrol({"show", "hostnames", node_list});
  if (!text) return tl::unexpected(text.error());
  std::vector<std::string> hosts;
  std::stringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) hosts.push_back(line);
  }
  if (hosts.empty()) return Fail("SLURM_JOB_NODELIST names no host", ExitCode::kPreflight);
  return hosts;
}

Result<double> SubmitTime(std::int64_t job_id) {
  auto text = Scontrol({"show", "job", "-o", std::to_string(job_id)});
  if (!text) return tl::unexpected(text.error());
  const std::string key = " SubmitTime=";
  const auto at = text->find(key);
  std::tm local{};
  local.tm_isdst = -1;
  if (at == std::string::npos ||
      ::strptime(text->c_str() + at + key.size(), "%Y-%m-%dT%H:%M:%S", &local) == nullptr) {
    return Fail(fmt::format("scontrol show job {}: no SubmitTime", job_id), ExitCode::kPreflight);
  }
  return static_cast<double>(std::mktime(&local));
}

Result<std::string> RunOnEveryHost(std::size_t hosts, const std::vector<std::string>& command,
                                   std::chrono::milliseconds deadline) {
  const auto n = std::to_string(hosts);
  std::vector<std::string> srun = {"srun",
                                   "--overlap",
                                   "--mpi=none",
                                   "--nodes=" + n,
                                   "--ntasks=" + n,
                                   "--ntasks-per-node=1",
                                   "--input=none",
                                   "--kill-on-bad-exit=0",
                                   "--cpu-bind=none",
                                   "--mem=0",
                                   "--label"};
  srun.insert(srun.end(), command.begin(), command.end());
  auto done = RunCommand({srun, WithoutInheritedShape(CurrentEnvironment()), ""}, deadline);
  if (!done) return tl::unexpected(done.error());
  if (!done->Ok()) {
    return Fail(fmt::format("the short step on all nodes failed ({}): {}",
                            DescribeExit(done->wait_status), Printable(done->errors)),
                ExitCode::kPreflight);
  }
  return done->output;
}

namespace {

Result<std::unique_ptr<JobStep>> StartSlurmStep(const JobStepSpec& spec) {
  std::string hosts;
  std::vector<std::string> distinct;
  for (const RankPlan& rank : spec.plan->ranks) {
    hosts += rank.device.node + "\n";
    if (std::find(distinct.begin(), distinct.end(), rank.device.node) == distinct.end())
      distinct.push_back(rank.device.node);
  }
  const std::string host_file = spec.run_dir + "/hostfile";
  auto written = WriteFile(host_file, hosts);
  if (!written) return tl::unexpected(written.error());
  Environment environment = WithoutInheritedShape(spec.environment);
  environment["SLURM_HOSTFILE"] =
      host_file;  // with --distribution=arbitrary: rank i runs on line i
  const std::string rank_log = WithoutPatterns(spec.run_dir) + RankLog(spec.mode, "%t");
  std::vector<std::string> command = {"srun",
                                      "--mpi=pmix",
                                      "--overlap",
                                      "--distribution=arbitrary",
                                      fmt::format("--nodes={}", distinct.size()),
                                      fmt::format("--ntasks={}", spec.plan->ranks.size()),
                                      "--no-kill",
                                      "--kill-on-bad-exit=0",
                                      "--cpu-bind=none",
                                      "--mem=0",
                                      "--input=none",
                                      "--wait=0",  // rank 0 saves when the others have left
                                      "--open-mode=append",
                                      "--export=ALL",
                                      "--output=" + rank_log,
                                      "--error=" + rank_log,
                                      "--job-name=adaptive-train",
                                      spec.worker};
  if (!spec.mode.empty()) command.push_back(spec.mode);
  // Several ranks may share a processor, of which the job may have one alone on each node.
  if (distinct.size() < spec.plan->ranks.size())
    command.insert(command.begin() + 1, "--overcommit");
  auto srun = ChildProcess::Start({command, environment, ""});
  if (!srun) return tl::unexpected(srun.error());
  return std::make_unique<SlurmStep>(std::move(*srun), spec.run_dir + "/logs/srun.log");
}

}  // namespace

JobStepFactory SlurmSteps() { return StartSlurmStep; }

}  // namespace adaptive_train
