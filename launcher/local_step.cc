// Ranks on this machine without Slurm: forked here, their PMIx served by the launcher itself.
#include <fmt/format.h>
#include <pmix.h>
#include <pmix_server.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>

#include "launcher/step.h"

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

/// The PMIx server of this process: started once, it serves until the process ends.
class PmixServer {
 public:
  static Result<std::unique_ptr<PmixServer>> Start() {
    std::string folder =
        (std::filesystem::temp_directory_path() / "adaptive-train-pmix-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr)
      return Fail(fmt::format("{}: {}", folder, std::strerror(errno)), ExitCode::kPreflight);
    std::unique_ptr<PmixServer> self(new PmixServer(folder));
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
    return self;
  }
  ~PmixServer() {
    // No PMIx_server_finalize: in 4.2.2 it crashes after ranks were killed inside a fence, and the
    // launcher's process ends soon. What it would have removed is removed here.
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;

 private:
  explicit PmixServer(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

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

/// The namespace of one step's ranks: a name is used once.
class Namespace {
 public:
  static Result<std::unique_ptr<Namespace>> Register(const std::string& name, int ranks) {
    auto done = RegisterNamespace(name, ranks);
    if (!done) return tl::unexpected(done.error());
    return std::unique_ptr<Namespace>(new Namespace(name));
  }
  ~Namespace() {
    // Nothing depends on its success; the wait keeps the server from ending under it.
    (void)adaptive_train::Register("PMIx_server_deregister_nspace",
                                   [&](pmix_op_cbfunc_t callback, void* handle) {
                                     PMIx_server_deregister_nspace(name_.c_str(), callback, handle);
                                     return PMIX_SUCCESS;
                                   });
  }
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;
  const std::string& Name() const { return name_; }

 private:
  explicit Namespace(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

class LocalStep final : public Step {
 public:
  LocalStep(std::unique_ptr<Namespace> nspace, std::vector<ChildProcess> ranks)
      : nspace_(std::move(nspace)), ranks_(std::move(ranks)), seen_(ranks_.size(), false) {}

  void Poll() override {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const auto status = ranks_[i].Poll();
      if (!status || seen_[i]) continue;
      seen_[i] = true;
      ends_.push_back({static_cast<int>(i), DescribeExit(*status)});
    }
  }
  bool Over() const override { return std::find(seen_.begin(), seen_.end(), false) == seen_.end(); }
  std::vector<RankEnd> TakeEnds() override { return std::exchange(ends_, {}); }
  std::string Trouble() const override { return ""; }
  void Kill(const std::string&) override {
    for (ChildProcess& rank : ranks_) rank.Signal(SIGKILL);
  }

 private:
  std::unique_ptr<Namespace> nspace_;  // outlives the ranks
  std::vector<ChildProcess> ranks_;
  std::vector<bool> seen_;
  std::vector<RankEnd> ends_;
};

Result<std::unique_ptr<Step>> StartStep(const StepSpec& spec, const std::string& name) {
  const int size = static_cast<int>(spec.plan->ranks.size());
  auto nspace = Namespace::Register(name, size);
  if (!nspace) return tl::unexpected(nspace.error());
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, name.c_str(), static_cast<pmix_rank_t>(rank));
    auto environment = PmixEnvironment(proc, spec.environment);
    if (!environment) return tl::unexpected(environment.error());
    auto child = ChildProcess::Start(
        {{spec.worker}, *environment, fmt::format("{}/logs/rank-{}.log", spec.run_dir, rank)});
    if (!child) return tl::unexpected(child.error());
    ranks.push_back(std::move(*child));
  }
  return std::make_unique<LocalStep>(std::move(*nspace), std::move(ranks));
}

}  // namespace

StepFactory LocalSteps() {
  // One server for all attempts: PMIx 4.2 does not survive a second PMIx_server_init in one
  // process.
  struct Server {
    std::unique_ptr<PmixServer> pmix;
    int attempts = 0;
  };
  return
      [server = std::make_shared<Server>()](const StepSpec& spec) -> Result<std::unique_ptr<Step>> {
        if (!server->pmix) {
          auto started = PmixServer::Start();
          if (!started) return tl::unexpected(started.error());
          server->pmix = std::move(*started);
        }
        return StartStep(spec, fmt::format("adaptive-train-{}-{}", ::getpid(), ++server->attempts));
      };
}

}  // namespace adaptive_train
