// Ranks on this machine without Slurm: a process of ours serves their PMIx, starts them and tells
// how they end.
#include <fmt/format.h>
#include <pmix.h>
#include <pmix_server.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>

#include "core/file_io.h"
#include "core/free_memory.h"
#include "launcher/steps/job_step.h"
#include "launcher/steps/programs.h"
#include "launcher/steps/step_folder.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kServerDeadline{10};

std::string HostName() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

// What the server library asks of its host. All ranks are local, so a fence that the library has
// collected is complete, and there is no other server to ask for a rank's data.

void FreeData(void* data) { std::free(data); }

pmix_status_t OnFence(const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t, char* data,
                      std::size_t bytes, pmix_modex_cbfunc_t done, void* handle) {
  if (done != nullptr) done(PMIX_SUCCESS, data, bytes, handle, FreeData, data);
  return PMIX_SUCCESS;
}

pmix_status_t OnDirectModex(const pmix_proc_t*, const pmix_info_t*, std::size_t,
                            pmix_modex_cbfunc_t, void*) {
  return PMIX_ERR_NOT_FOUND;
}

pmix_status_t OnClient(const pmix_proc_t*, void*, pmix_op_cbfunc_t done, void* handle) {
  if (done != nullptr) done(PMIX_SUCCESS, handle);
  return PMIX_SUCCESS;
}

pmix_status_t OnAbort(const pmix_proc_t*, void*, int, const char*, pmix_proc_t*, std::size_t,
                      pmix_op_cbfunc_t done, void* handle) {
  if (done != nullptr) done(PMIX_SUCCESS, handle);
  return PMIX_SUCCESS;
}

/// A list of PMIx infos with its clean-up.
class Infos {
 public:
  explicit Infos(std::size_t n) : n_(n) { PMIX_INFO_CREATE(data_, n_); }
  ~Infos() { PMIX_INFO_FREE(data_, n_); }
  Infos(const Infos&) = delete;
  Infos& operator=(const Infos&) = delete;

  void Add(const char* key, const void* value, pmix_data_type_t type) {
    PMIX_INFO_LOAD(&data_[used_++], key, value, type);
  }
  void Add(const char* key, const std::string& value) { Add(key, value.c_str(), PMIX_STRING); }
  void Add(const char* key, std::uint32_t value) { Add(key, &value, PMIX_UINT32); }
  pmix_info_t* Data() { return data_; }
  std::size_t Size() const { return used_; }

 private:
  std::size_t n_;
  std::size_t used_ = 0;
  pmix_info_t* data_ = nullptr;
};

/// Calls one of the library's asynchronous registrations and waits for it.
template <class Call>
Result<void> Register(const char* name, Call call) {
  // Owned by the callback, which comes even if we have stopped waiting.
  auto* promise = new std::promise<pmix_status_t>();
  auto outcome = promise->get_future();
  pmix_op_cbfunc_t done = [](pmix_status_t status, void* handle) {
    std::unique_ptr<std::promise<pmix_status_t>> owned(
        static_cast<std::promise<pmix_status_t>*>(handle));
    owned->set_value(status);
  };
  const pmix_status_t started = call(done, promise);
  if (started == PMIX_OPERATION_SUCCEEDED) {
    delete promise;
    return {};
  }
  if (started != PMIX_SUCCESS) {
    delete promise;
    return Fail(fmt::format("{}: {}", name, PMIx_Error_string(started)), ExitCode::kRankFailure);
  }
  if (outcome.wait_for(kServerDeadline) != std::future_status::ready) {
    return Fail(fmt::format("{} did not end within {} s", name, kServerDeadline.count()),
                ExitCode::kRankFailure);
  }
  const pmix_status_t status = outcome.get();
  if (status != PMIX_SUCCESS)
    return Fail(fmt::format("{}: {}", name, PMIx_Error_string(status)), ExitCode::kRankFailure);
  return {};
}

/// Starts the PMIx server of this process; it serves until the process ends. There is no way back:
/// in 4.2.2 PMIx_server_finalize crashes, and deregistering hangs at times, after ranks were killed
/// inside a fence, and a second PMIx_server_init in one process fails. Hence a process for each
/// step.
Result<void> StartServer(const std::string& folder) {
  static pmix_server_module_t module{};
  module.client_connected = OnClient;
  module.client_finalized = OnClient;
  module.abort = OnAbort;
  module.fence_nb = OnFence;
  module.direct_modex = OnDirectModex;
  Infos infos(1);
  infos.Add(PMIX_SERVER_TMPDIR, folder);
  const pmix_status_t status = PMIx_server_init(&module, infos.Data(), infos.Size());
  if (status != PMIX_SUCCESS)
    return Fail(fmt::format("PMIx_server_init: {}", PMIx_Error_string(status)),
                ExitCode::kRankFailure);
  return {};
}

Result<void> RegisterNamespace(const std::string& nspace, int ranks) {
  const std::string host = HostName();
  std::string list;
  for (int r = 0; r < ranks; ++r) list += (r ? "," : "") + std::to_string(r);
  char* nodes = nullptr;
  char* procs = nullptr;
  PMIx_generate_regex(host.c_str(), &nodes);
  PMIx_generate_ppn(list.c_str(), &procs);
  const auto n = static_cast<std::uint32_t>(ranks);
  Infos infos(9);
  infos.Add(PMIX_UNIV_SIZE, n);
  infos.Add(PMIX_JOB_SIZE, n);
  infos.Add(PMIX_LOCAL_SIZE, n);
  infos.Add(PMIX_NODE_SIZE, n);
  infos.Add(PMIX_JOB_NUM_APPS, std::uint32_t{1});
  infos.Add(PMIX_LOCAL_PEERS, list);
  infos.Add(PMIX_NODE_MAP, nodes, PMIX_REGEX);
  infos.Add(PMIX_PROC_MAP, procs, PMIX_REGEX);
  infos.Add(PMIX_JOBID, nspace);
  auto done = Register("PMIx_server_register_nspace", [&](pmix_op_cbfunc_t callback, void* handle) {
    return PMIx_server_register_nspace(nspace.c_str(), ranks, infos.Data(), infos.Size(), callback,
                                       handle);
  });
  std::free(nodes);
  std::free(procs);
  return done;
}

/// The variables by which rank `proc` finds the server, added to `environment`.
Result<Environment> PmixEnvironment(const pmix_proc_t& proc, Environment environment) {
  auto registered = Register("PMIx_server_register_client", [&](pmix_op_cbfunc_t callback,
                                                                void* handle) {
    return PMIx_server_register_client(&proc, ::getuid(), ::getgid(), nullptr, callback, handle);
  });
  if (!registered) return tl::unexpected(registered.error());
  char** variables = nullptr;
  const pmix_status_t status = PMIx_server_setup_fork(&proc, &variables);
  if (status != PMIX_SUCCESS)
    return Fail(fmt::format("PMIx_server_setup_fork: {}", PMIx_Error_string(status)),
                ExitCode::kRankFailure);
  for (char** v = variables; v != nullptr && *v != nullptr; ++v) {
    const std::string text(*v);
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
    std::free(*v);
  }
  std::free(variables);
  return environment;
}

/// How the launcher and the step's process speak: for each rank that ended a line with its number,
/// its wait status, and whether the system has ended it because memory was short.
constexpr const char* kEndLine = "rank {} status {} oom {}\n";
constexpr const char* kReadEndLine = "rank %d status %d oom %d";

/// A process of ours that serves PMIx and runs the ranks, as srun and slurmstepd do elsewhere.
/// Ranks die with it, and it with the launcher.
class LocalStep final : public JobStep {
 public:
  LocalStep(ChildProcess process, StepFolder folder, std::size_t ranks)
      : folder_(std::move(folder)), process_(std::move(process)), told_(ranks, false) {}
  ~LocalStep() override { process_.Signal(SIGKILL); }

  void Poll() override {
    const bool was_over = Over();
    status_ = process_.Poll();
    output_ += process_.ReadOutput();
    trouble_ += process_.ReadErrors();
    for (auto end = output_.find('\n'); end != std::string::npos; end = output_.find('\n')) {
      Understand(output_.substr(0, end));
      output_.erase(0, end + 1);
    }
    if (!was_over && Over() && WIFSIGNALED(*status_)) EndTheRest();
  }
  bool Over() const override { return status_.has_value(); }
  bool MayEndBeside() const override { return false; }
  std::vector<RankEnd> TakeEnds() override { return std::exchange(ends_, {}); }
  std::string Trouble() const override {
    return Printable(trouble_.substr(0, trouble_.find('\n')));
  }
  std::string TroubledNode() const override { return ""; }
  bool TroubleMayPass() const override { return false; }
  void Kill(const std::string&) override {
    told_.assign(told_.size(), true);
    process_.Signal(SIGKILL);
  }

 private:
  void Understand(const std::string& line) {
    int rank = 0, status = 0, oom = 0;
    if (std::sscanf(line.c_str(), kReadEndLine, &rank, &status, &oom) != 3) return;
    if (rank >= 0 && static_cast<std::size_t>(rank) < told_.size()) told_[rank] = true;
    if (oom != 0)
      ends_.push_back({rank, DescribeExit(status) + ", out of memory", WIFSIGNALED(status),
                       FailureKind::kOutOfMemory});
    else
      ends_.push_back({rank, DescribeExit(status), WIFSIGNALED(status), KindOfEnd(status)});
  }

  /// The process that holds the ranks was killed, or PMIx's server library in it crashed (see
  /// StartServer): the ranks died with it.
  void EndTheRest() {
    const std::string how =
        "killed with the process that holds the ranks, which was " + DescribeExit(*status_);
    for (std::size_t rank = 0; rank < told_.size(); ++rank)
      if (!told_[rank]) ends_.push_back({static_cast<int>(rank), how, true, FailureKind::kKilled});
  }

  StepFolder folder_;  // of the PMIx server
  ChildProcess process_;
  std::string output_, trouble_;
  std::vector<RankEnd> ends_;
  std::vector<bool> told_;  // index = rank: how it ended, or that it does not matter
  std::optional<int> status_;
};

Result<std::unique_ptr<JobStep>> StartLocalStep(const JobStepSpec& spec) {
  auto programs = FindPrograms();
  if (!programs) return tl::unexpected(programs.error());
  auto folder = StepFolder::Make();
  if (!folder) return tl::unexpected(folder.error());
  auto process = ChildProcess::Start(
      {{programs->self, "local-step", "--ranks", std::to_string(spec.plan->ranks.size()),
        "--run-dir", spec.run_dir, "--worker", spec.worker, "--mode", spec.mode, "--pmix-folder",
        folder->Path()},
       spec.environment,
       ""});
  if (!process) return tl::unexpected(process.error());
  return std::make_unique<LocalStep>(std::move(*process), std::move(*folder),
                                     spec.plan->ranks.size());
}

Result<std::vector<ChildProcess>> StartRanks(const LocalStepRequest& request) {
  const std::string nspace = fmt::format("adaptive-train-{}", ::getpid());
  auto started = StartServer(request.pmix_folder);
  if (started) started = RegisterNamespace(nspace, request.ranks);
  if (!started) return tl::unexpected(started.error());
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < request.ranks; ++rank) {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, nspace.c_str(), static_cast<pmix_rank_t>(rank));
    auto environment = PmixEnvironment(proc, CurrentEnvironment());
    if (!environment) return tl::unexpected(environment.error());
    std::vector<std::string> command = {request.worker};
    if (!request.mode.empty()) command.push_back(request.mode);
    auto child = ChildProcess::Start(
        {command, *environment, request.run_dir + RankLog(request.mode, std::to_string(rank))});
    if (!child) return tl::unexpected(child.error());
    ranks.push_back(std::move(*child));
  }
  return ranks;
}

}  // namespace

JobStepFactory LocalSteps() { return StartLocalStep; }

void RunLocalStep(const LocalStepRequest& request) {
  auto ranks = StartRanks(request);
  if (!ranks) {
    fmt::print(stderr, "{}\n", ranks.error().message);
    std::_Exit(ToInt(ExitCode::kRankFailure));
  }
  std::vector<bool> ended(ranks->size(), false);
  std::int64_t killed_for_memory = KilledForMemory();
  while (std::find(ended.begin(), ended.end(), false) != ended.end()) {
    for (std::size_t i = 0; i < ranks->size(); ++i) {
      const auto status = (*ranks)[i].Poll();
      if (!status || ended[i]) continue;
      ended[i] = true;
      const bool killed = WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL;
      const std::int64_t before = killed_for_memory;
      if (killed) killed_for_memory = KilledForMemory();
      fmt::print(kEndLine, i, *status, killed_for_memory > before ? 1 : 0);
    }
    ::usleep(20'000);
  }
  std::_Exit(ToInt(ExitCode::kDone));  // not through PMIx: see StartServer
}

}  // namespace adaptive_train
