#include "launcher/steps/slurm_step.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "core/file_io.h"
#include "core/seconds.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kScontrolDeadline{20};
constexpr std::chrono::seconds kPluginDeadline{20};
/// Of a question and a short step: slurmctld or munge may have no time for a moment, and Slurm may
/// not reach a node that has just come back.
constexpr int kSlurmTries = 3;
constexpr std::chrono::seconds kBetweenQuestions{1}, kBetweenShortSteps{2};
/// Ranks that are told to end do so by themselves. Slurm is asked only after that: slurmstepd 22.05.8
/// that hears of it in the millisecond in which its last task ends waits for UnkillableStepTimeout,
/// and then drains its node (docs/decisions.md).
constexpr std::chrono::milliseconds kOwnEndGrace{500};
/// After its step was killed srun may wait for a node that is gone; nobody waits for srun longer
/// than this.
constexpr std::chrono::seconds kSrunGrace{2};

Result<std::string> Scontrol(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "scontrol");
  for (int left = kSlurmTries;; --left) {
    auto done = RunCommand({arguments, std::nullopt, ""}, kScontrolDeadline);
    if (!done) return tl::unexpected(done.error());
    if (done->Ok()) return done->output;
    if (left == 1 || PendingStopSignal())
      return Fail(fmt::format("scontrol {}: {} {}", arguments[1], DescribeExit(done->wait_status),
                              Printable(done->errors)),
                  ExitCode::kPreflight);
    std::this_thread::sleep_for(kBetweenQuestions);
  }
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

/// An error of srun itself, not the end of a task.
bool IsSrunsTrouble(const std::string& line) {
  return (line.starts_with("srun: error:") || line.starts_with("srun: fatal:")) &&
         !ParseTaskEnd(line);
}

/// The first such line; empty: none. Another try may do better then.
std::string TroubleOfSrun(const std::string& errors) {
  std::stringstream lines(errors);
  for (std::string line; std::getline(lines, line);)
    if (IsSrunsTrouble(line)) return line;
  return "";
}

/// What follows `word` in `line`, up to one of `ends`.
std::string After(const std::string& line, std::string_view word, std::string_view ends) {
  const auto at = line.find(word);
  if (at == std::string::npos) return "";
  const auto begin = at + word.size();
  return line.substr(begin, line.find_first_of(ends, begin) - begin);
}

/// "srun: error: task 2 launch failed: Unspecified error", "... tasks 0-1 launch failed": the tasks.
std::string TasksOfLaunchError(const std::string& line) {
  const auto end = line.find(" launch failed:");
  if (end == std::string::npos || line.find(": task") == std::string::npos) return "";
  const auto begin = line.rfind(' ', end - 1) + 1;
  return line.substr(begin, end - begin);
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
  SlurmStep(ChildProcess srun, std::string log, std::vector<std::string> hosts)
      : srun_(std::move(srun)), log_(std::move(log)), hosts_(std::move(hosts)) {}
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
    if (!Over()) EndInTime(std::chrono::steady_clock::now());
  }
  bool Over() const override { return status_.has_value(); }
  bool MayEndBeside() const override { return true; }  // srun waits long for a node that is gone
  std::vector<RankEnd> TakeEnds() override { return std::exchange(ends_, {}); }
  std::string Trouble() const override {
    if (!trouble_.empty()) return trouble_;
    return status_ && *status_ != 0 ? "srun: " + DescribeExit(*status_) : "";
  }
  std::string TroubledNode() const override { return troubled_node_; }
  bool TroubleMayPass() const override { return !trouble_.empty(); }

  void Kill(const std::string& step_id) override {
    if (Over() || kill_at_) return;
    step_id_ = step_id;
    kill_at_ = std::chrono::steady_clock::now() + kOwnEndGrace;
  }

 private:
  /// As far as the step was to be killed.
  void EndInTime(std::chrono::steady_clock::time_point now) {
    if (srun_deadline_) {
      if (now > *srun_deadline_) srun_.SignalAlone(SIGKILL);
    } else if (kill_at_ && now > *kill_at_) {
      KillRanks();
      srun_deadline_ = now + kSrunGrace;
    }
  }

  /// srun itself gives up after two signals without telling a stopped rank; slurmd kills it for
  /// scancel.
  void KillRanks() {
    if (step_id_.empty()) {
      srun_.Signal(SIGTERM);
      return;
    }
    auto scancel = ChildProcess::Start({{"scancel", "--signal=KILL", step_id_}, std::nullopt, ""});
    if (scancel) scancel_ = std::move(*scancel);
  }

  void Understand(const std::string& line) {
    if (auto ended = ParseTaskEnd(line)) {
      for (int task : ended->tasks)
        ends_.push_back(
            {task, ended->how, !ended->how.starts_with("Exited"), KindOfSrunsWords(ended->how)});
    } else if (IsSrunsTrouble(line) || line.rfind("slurmstepd: error:", 0) == 0) {
      if (trouble_.empty()) NoteTrouble(line);
    }
    // Everything srun says is kept for a person to read.
    std::FILE* file = std::fopen(log_.c_str(), "a");
    if (file == nullptr) return;
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }

  void NoteTrouble(const std::string& line) {
    trouble_ = Printable(line);
    troubled_node_ = NodeOfError(line);
    const std::vector<int> tasks = ParseTasks(TasksOfLaunchError(line));
    if (tasks.empty() || static_cast<std::size_t>(tasks.front()) >= hosts_.size()) return;
    troubled_node_ = hosts_[static_cast<std::size_t>(tasks.front())];
    trouble_ += fmt::format(" (on {})", troubled_node_);
  }

  ChildProcess srun_;
  std::optional<ChildProcess> scancel_;
  const std::string log_;
  const std::vector<std::string> hosts_;  // of the tasks
  std::string errors_;
  std::string trouble_, troubled_node_;
  std::vector<RankEnd> ends_;
  std::optional<int> status_;
  std::string step_id_;  // to kill
  std::optional<std::chrono::steady_clock::time_point> kill_at_, srun_deadline_;
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

std::string NodeOfError(const std::string& line) {
  // Slurm's pmix plugin: "slurmstepd: error:  mpi/pmix_v4: FUNCTION: n1 [0]: FILE:LINE: TEXT".
  for (auto open = line.find(" ["); open != std::string::npos; open = line.find(" [", open + 1)) {
    const auto close = line.find_first_not_of("0123456789", open + 2);
    if (close == open + 2 || close == std::string::npos || line.compare(close, 2, "]:") != 0)
      continue;
    return line.substr(line.rfind(' ', open - 1) + 1, open - line.rfind(' ', open - 1) - 1);
  }
  // srun: "srun: error: Task launch for StepId=7.1 failed on node n3: TEXT".
  return After(line, " on node ", ": ");
}

Result<void> CheckPmixPlugin(const std::string& plugin) {
  auto done = RunCommand({{"srun", "--mpi=list"}, std::nullopt, ""}, kPluginDeadline);
  if (!done) return tl::unexpected(done.error());
  // Older srun lists on standard error.
  if (NamesPlugin(done->output + "\n" + done->errors, plugin)) return {};
  if (!done->Ok())
    return Fail(fmt::format("srun --mpi=list: {} {}", DescribeExit(done->wait_status),
                            Printable(done->errors)),
                ExitCode::kPreflight);
  return Fail("Slurm has no " + plugin +
                  " plugin, by which ranks find each other: srun --mpi=list says: " +
                  Printable(done->output + " " + done->errors, 300),
              ExitCode::kPreflight);
}

Result<std::optional<std::string>> SlurmVersion() {
  constexpr int kNotThere = 127;
  auto done = RunCommand({{"srun", "--version"}, std::nullopt, ""}, kPluginDeadline);
  if (!done) return tl::unexpected(done.error());
  if (WIFEXITED(done->wait_status) && WEXITSTATUS(done->wait_status) == kNotThere)
    return std::nullopt;
  if (!done->Ok())
    return Fail(Printable(done->errors.substr(0, done->errors.find('\n'))), ExitCode::kPreflight);
  return Printable(done->output.substr(0, done->output.find('\n')), 60);
}

std::map<std::string, std::string> ParseSlurmSettings(const std::string& text) {
  std::map<std::string, std::string> settings;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find(" = ");
    const auto key_end = line.find(' ');
    if (equals != std::string::npos) settings[line.substr(0, key_end)] = line.substr(equals + 3);
  }
  return settings;
}

std::string ShownBySlurm(const std::vector<std::string>& arguments) {
  return Scontrol(arguments).value_or("");
}

Result<std::map<std::string, std::string>> SlurmSettings() {
  return Scontrol({"show", "config"}).map(ParseSlurmSettings);
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

std::optional<double> TimeOfJob(const std::string& shown, const std::string& name) {
  const std::string key = " " + name + "=";
  const auto at = shown.find(key);
  std::tm local{};
  local.tm_isdst = -1;
  if (at == std::string::npos ||
      ::strptime(shown.c_str() + at + key.size(), "%Y-%m-%dT%H:%M:%S", &local) == nullptr)
    return std::nullopt;
  return static_cast<double>(std::mktime(&local));
}

bool ControllerAnswers(std::int64_t job_id, std::chrono::seconds deadline) {
  const auto done = RunCommand(
      {{"scontrol", "show", "job", "-o", std::to_string(job_id)}, std::nullopt, ""}, deadline);
  return done && done->Ok();
}

Result<double> SubmitTime(std::int64_t job_id) {
  auto text = Scontrol({"show", "job", "-o", std::to_string(job_id)});
  if (!text) return tl::unexpected(text.error());
  if (const auto time = TimeOfJob(*text, "SubmitTime")) return *time;
  return Fail(fmt::format("scontrol show job {}: no SubmitTime", job_id), ExitCode::kPreflight);
}

Result<ShortStep> TimeOnEveryHost(std::size_t hosts, const std::vector<std::string>& command,
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
  bool hung = false;
  for (int left = kSlurmTries;; --left) {
    const double began = SteadySecondsNow();
    auto done = RunCommand({srun, WithoutInheritedShape(CurrentEnvironment()), ""}, deadline);
    if (done && done->Ok()) return ShortStep{done->output, SteadySecondsNow() - began};
    // An srun that slurmctld did not answer says nothing for more than a minute. A command may hang
    // as well: it is tried once more.
    const bool hung_again = !done && std::exchange(hung, true);
    const std::string trouble = done ? TroubleOfSrun(done->errors) : done.error().message;
    if (left == 1 || hung_again || trouble.empty() || PendingStopSignal()) {
      if (!done) return tl::unexpected(done.error());
      return Fail(fmt::format("the short step on all nodes failed ({}): {}",
                              DescribeExit(done->wait_status),
                              Printable(trouble.empty() ? done->errors : trouble)),
                  ExitCode::kPreflight);
    }
    std::this_thread::sleep_for(kBetweenShortSteps);
  }
}

Result<std::string> RunOnEveryHost(std::size_t hosts, const std::vector<std::string>& command,
                                   std::chrono::milliseconds deadline) {
  auto step = TimeOnEveryHost(hosts, command, deadline);
  if (!step) return tl::unexpected(step.error());
  return std::move(step->output);
}

namespace {

Result<std::unique_ptr<JobStep>> StartSlurmStep(const JobStepSpec& spec) {
  std::string host_lines;
  std::vector<std::string> hosts, distinct;
  for (const RankPlan& rank : spec.plan->ranks) {
    host_lines += rank.device.node + "\n";
    hosts.push_back(rank.device.node);
    if (std::find(distinct.begin(), distinct.end(), rank.device.node) == distinct.end())
      distinct.push_back(rank.device.node);
  }
  const std::string host_file = spec.run_dir + "/hostfile";
  auto written = WriteFile(host_file, host_lines);
  if (!written) return tl::unexpected(written.error());
  Environment environment = WithoutInheritedShape(spec.environment);
  environment["SLURM_HOSTFILE"] =
      host_file;  // with --distribution=arbitrary: rank i runs on line i
  const std::string rank_log = WithoutPatterns(spec.run_dir) + RankLog(spec.mode, "%t");
  std::vector<std::string> command = {"srun",
                                      "--mpi=" + spec.launch.mpi,
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
  return std::make_unique<SlurmStep>(std::move(*srun), spec.run_dir + "/logs/srun.log",
                                     std::move(hosts));
}

}  // namespace

JobStepFactory SlurmSteps() { return StartSlurmStep; }

}  // namespace adaptive_train
