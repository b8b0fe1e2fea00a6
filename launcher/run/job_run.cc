#include "launcher/run/job_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>

#include "core/file_io.h"
#include "launcher/measure/allocation_profile.h"
#include "launcher/nodes/allocation.h"
#include "launcher/nodes/node_check.h"
#include "launcher/nodes/slow_parts.h"
#include "launcher/report/run_statistics.h"
#include "launcher/run/injections.h"
#include "launcher/run/job_ledger.h"
#include "launcher/run/plan_files.h"
#include "launcher/run/plan_inputs.h"
#include "launcher/run/plan_request.h"
#include "launcher/run/recovery.h"
#include "launcher/run/run_folder.h"
#include "launcher/run/training.h"
#include "launcher/steps/ending_steps.h"
#include "launcher/steps/programs.h"
#include "launcher/steps/slurm_step.h"
#include "launcher/steps/stop_signals.h"
#include "runtime/data/token_dataset.h"

namespace adaptive_train {
namespace {

/// Prints and ignores errors: a reader that is gone, or a full disk behind the output, must not end
/// a run.
template <class... Arguments>
void Say(std::FILE* out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), out);
}

void SayLine(const std::string& line) { Say(stdout, "{}\n", line); }

/// A requeued job may find the lock of its dead predecessor. File servers keep it for a lease, 90 s
/// by NFS's default.
constexpr std::chrono::seconds kRequeuePatience{120};

/// A run that can be recorded. The members below `run_dir` are set once it is ready.
struct Prepared {
  Config config;
  Allocation allocation;
  std::string run_dir;  // absolute
  std::vector<Injection> injections = {};
  std::optional<RunFolder> folder = std::nullopt;
  std::optional<FolderLock> checkpoints = std::nullopt;
  Programs programs = {};
  double unigram_entropy = 0;
  std::vector<std::string> data_files = {};
};

RunOwner OwnerOf(const Allocation& a) {
  return {a.cluster, a.job_id, a.restart_count, a.submit_time};
}

std::string RunDirOf(const RunRequest& request, const Allocation& allocation) {
  if (!request.run_dir.empty()) return request.run_dir;
  if (!allocation.in_slurm)
    return fmt::format("runs/{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  const std::string plain = "runs/" + allocation.ShownId();
  if (RunFolder::MayBelongTo(plain, OwnerOf(allocation))) return plain;
  // A cluster that was set up again counts its jobs from 1: never resume another job's checkpoints.
  return fmt::format("{}-{:%Y%m%d-%H%M%S}", plain,
                     fmt::localtime(static_cast<std::time_t>(allocation.submit_time)));
}

/// The job's options may forbid the compression that the configuration requests, but not the
/// reverse.
void HoldCompressionTo(const Allocation& allocation, Config& config) {
  if (!allocation.options || allocation.options->compress != JobOptions::Compress::kOff) return;
  if (config.compression.mode == CompressionMode::kOff) return;
  Say(stdout, "compression.mode = \"{}\" of the configuration is off: the job has compress=off\n",
      NameOf(config.compression.mode));
  config.compression.mode = CompressionMode::kOff;
}

struct CheckedData {
  double unigram_entropy;
  std::vector<std::string> files;
  std::string description;
};

/// Checks on this host that the data exists and suffices for one batch. Also returns the entropy to
/// beat.
Result<CheckedData> CheckData(const Config& config) {
  auto data = OpenDatasets({config.data.train, config.data.validation, config.data.format,
                            config.model.sequence, TextVocab(config.model),
                            static_cast<std::uint64_t>(config.train.seed)});
  if (!data) return Fail(data.error().message, ExitCode::kPreflight);
  if (data->train.samples() < config.train.global_batch) {
    return Fail(fmt::format("data.train: {}: {} samples of {} tokens are fewer than one batch, "
                            "train.global_batch = {}",
                            config.data.train, data->train.samples(), config.model.sequence,
                            config.train.global_batch),
                ExitCode::kPreflight);
  }
  auto entropy = data->validation.UnigramEntropy();
  if (!entropy) return Fail(entropy.error().message, ExitCode::kPreflight);
  return CheckedData{*entropy, FilesOf(*data), data->train.file().Description()};
}

/// srun starts as many launchers as it has tasks, and each would train by itself.
Result<void> CheckCalledOnce() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr || std::atoi(tasks) <= 1) return {};
  return Fail(
      fmt::format("srun called `adaptive-train run` {} times: call it once, without srun, "
                  "in a batch script or under salloc; it starts the ranks itself",
                  Printable(tasks, 20)));
}

/// Whether both paths name the same existing folder.
bool IsSameFolder(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

/// Another run with the same checkpoint.dir would remove what this one is writing.
Result<FolderLock> LockCheckpoints(const std::string& folder, std::chrono::seconds patience) {
  auto made = MakeFolder(folder);
  if (!made) return FailIn("checkpoint.dir", made.error());
  return FolderLock::Take({folder, "checkpoint.dir", "give each run its own", patience, SayLine});
}

/// Collects what is needed to record a run: its configuration and its allocation.
Result<Prepared> Prepare(const RunRequest& request) {
  if (auto once = CheckCalledOnce(); !once) return tl::unexpected(once.error());
  auto config = LoadConfig(request.config, request.overrides, request.defaults);
  if (!config) return tl::unexpected(config.error());
  auto injections = AllowedInjections(request.inject, *config);
  if (!injections) return tl::unexpected(injections.error());
  auto allocation = FindAllocation();
  if (!allocation) return tl::unexpected(allocation.error());
  HoldCompressionTo(*allocation, *config);
  std::error_code error;
  const std::string run_dir = RunDirOf(request, *allocation);
  const auto absolute = std::filesystem::absolute(run_dir, error).lexically_normal();
  if (error) return Fail(run_dir + ": " + error.message(), ExitCode::kPreflight);
  if (config->checkpoint.dir == "auto") config->checkpoint.dir = absolute / "checkpoints";
  config->checkpoint.dir =
      std::filesystem::absolute(config->checkpoint.dir).lexically_normal().string();
  return Prepared{std::move(*config), std::move(*allocation), absolute.string(),
                  std::move(*injections)};
}

/// Checks what this host can check, and opens the run folder.
Result<void> MakeReady(Prepared& run, JobLedger& ledger) {
  auto programs = FindPrograms();
  if (!programs) return tl::unexpected(programs.error());
  run.programs = std::move(*programs);
  if (run.allocation.in_slurm) {
    if (auto pmix = CheckPmixPlugin(run.config.launch.mpi); !pmix) return pmix;
  }
  auto data = CheckData(run.config);
  if (!data) return tl::unexpected(data.error());
  Say(stdout, "data.train: {}: {}\n", run.config.data.train, data->description);
  run.unigram_entropy = data->unigram_entropy;
  run.data_files = std::move(data->files);
  const auto patience =
      run.allocation.restart_count > 0 ? kRequeuePatience : std::chrono::seconds{0};
  auto folder = RunFolder::Open(run.run_dir, patience, SayLine);
  if (!folder) return tl::unexpected(folder.error());
  run.folder.emplace(std::move(*folder));
  ledger.FolderIsOpen();
  if (!IsSameFolder(run.config.checkpoint.dir, run.run_dir)) {
    auto checkpoints = LockCheckpoints(run.config.checkpoint.dir, patience);
    if (!checkpoints) return tl::unexpected(checkpoints.error());
    run.checkpoints.emplace(std::move(*checkpoints));
  }
  auto written = run.folder->SetOwner(OwnerOf(run.allocation));
  if (written) written = run.folder->Write("config.resolved.toml", ToToml(run.config));
  return written;
}

Result<Cluster> PhotographCluster(const Prepared& run) {
  auto seen =
      SeeNodes(run.config, run.allocation, run.programs, run.folder->Path(), run.data_files);
  if (!seen) return tl::unexpected(seen.error());
  for (const NodeCheck& check : seen->checks) {
    const Node& node = check.node;
    Say(stdout, "  {}: {}, {} of {} cores, {}, {} GPU{} (snapshot by {})\n", node.name,
        node.processors.model.empty() ? "unknown processor" : node.processors.model,
        node.processors.allowed_cores, node.processors.cores, DescribeMemory(node.memory),
        node.gpus.size(), node.gpus.size() == 1 ? "" : "s",
        node.source == "prolog" ? "the prolog" : "the user");
    if (!check.note.empty()) Say(stdout, "    note: {}\n", check.note);
  }
  auto written = run.folder->Write("cluster.json", ToJson(seen->cluster));
  if (!written) return tl::unexpected(written.error());
  return std::move(seen->cluster);
}

/// Takes from `cluster` what a failed measuring has lost, stores the failure, and says both.
Result<void> GoOnWithout(const Recovery::Loss& loss, RunOutcome& failed, const Recovery& recovery,
                         const Prepared& run, Cluster& cluster, JobLedger& ledger) {
  failed.failure->failure.kind = recovery.KindOf(*failed.failure);
  ledger.Failed(*failed.failure);
  std::vector<SpareNode> none;  // all nodes are measured before spares are chosen
  const std::string without = ReplaceLost(loss.nodes, cluster, none);
  auto written = run.folder->Write("cluster.json", ToJson(cluster));
  if (!written) return written;
  Say(stdout, "measuring the nodes: {}\nmeasuring again{} (failure {} of measuring)\n",
      failed.message, without, recovery.Count());
  return {};
}

/// Measures the nodes of `cluster`, which loses those that fall silent meanwhile: then the
/// others are measured anew, once the failed step has ended or kMeasureEndPatience is over.
Result<AllocationProfile> MeasureNodes(const Prepared& run, Cluster& cluster, const Profile& stored,
                                       bool reuse, JobLedger& ledger) {
  Recovery recovery({run.config.recovery.attempts, run.allocation.OwnNode()});
  EndingSteps ending;
  for (;;) {
    std::optional<RunOutcome> failed;
    MeasureSite site{run.allocation, cluster, run.programs, run.folder->Path(), ending, {}, {}};
    site.launch = run.config.launch;
    site.on_notice = [](const std::string& line) { Say(stdout, "  {}\n", line); };
    site.on_launch = [&](int attempt, const std::string& outcome, const std::string& reason) {
      if (attempt == 1) ledger.BeginLaunches();
      ledger.Launched(attempt, outcome, reason);
    };
    site.on_failure = [&failed](const RunOutcome& outcome) { failed = outcome; };
    auto measured = ProfileAllocation(site, stored, reuse);
    const auto loss = failed ? recovery.After(*failed) : std::nullopt;
    auto went_on =
        loss ? GoOnWithout(*loss, *failed, recovery, run, cluster, ledger) : Result<void>();
    ending.Await(kMeasureEndPatience);
    if (!went_on) return tl::unexpected(went_on.error());
    if (!loss) return measured;
  }
}

/// Merges stored and new measurements of these nodes, and writes profile.json. Nodes that are lost
/// meanwhile leave `cluster`.
Result<Profile> ProfileNodes(const Prepared& run, Cluster& cluster, JobLedger& ledger) {
  const auto& options = run.allocation.options;
  const bool reuse = run.config.profile.reuse == "auto" &&
                     !(options && options->reuse == JobOptions::Reuse::kNever);
  Profile stored = Usable(ledger.Known(QueryOf(cluster, run.config)), cluster,
                          SpotCheckOf(run.config.profile, cluster));
  if (!reuse) stored = Profile{{}, {}, {}, std::move(stored.nodes), std::move(stored.lost_links)};
  if (cluster.nodes.size() > 1 && !run.config.profile.measure) {
    Say(stdout, "links and devices: not measured (profile.measure = false)\n");
  } else if (cluster.nodes.size() > 1) {
    auto measured = MeasureNodes(run, cluster, stored, reuse, ledger);
    if (!measured) return tl::unexpected(measured.error());
    Say(stdout, "{}\n", measured->summary);
    for (const SlowPart& slow : measured->slow) Say(stdout, "  note: {}\n", slow.line);
    ledger.Measured(cluster.name, measured->measured);
    stored = std::move(measured->profile);
  }
  auto written = run.folder->Write("profile.json", ToJson(stored));
  if (!written) return tl::unexpected(written.error());
  return stored;
}

/// What the plan is made from. Spares are out of the cluster, also in cluster.json: whoever plans
/// again from the files does without them too.
Result<GatheredInputs> Gather(const Prepared& run, Cluster cluster, Profile profile) {
  auto gathered =
      GatherInputs(run.config, std::move(cluster), std::move(profile), run.allocation.Spares());
  if (!gathered || gathered->spares.empty()) return gathered;
  for (const SpareNode& spare : gathered->spares) Say(stdout, "  kept aside: {}\n", spare.why);
  auto written = run.folder->Write("cluster.json", ToJson(gathered->inputs.cluster));
  if (!written) return tl::unexpected(written.error());
  return gathered;
}

Result<Plan> PlanRun(const Prepared& run, const PlanInputs& inputs) {
  auto plan = PlanFor(inputs);
  if (!plan) return plan;
  auto written = WritePlan(*run.folder, *plan, inputs);
  if (!written) return tl::unexpected(written.error());
  if (auto runs = CheckRunnable(*plan); !runs) return tl::unexpected(runs.error());
  return plan;
}

void PrintEnd(const Prepared& run, const RunOutcome& outcome, const RunStatistics& statistics,
              int retries) {
  Say(stdout, "{}", DescribeRun(statistics, run.unigram_entropy, retries));
  Say(stdout, "run folder: {}\n", run.folder->Path());
  if (outcome.code == ExitCode::kDone) return;
  Say(stderr, "adaptive-train: {}\n", outcome.message);
  if (outcome.failure && outcome.failure->failure.rank >= 0)
    Say(stderr, "adaptive-train: its log: {}/logs/rank-{}.log\n", run.folder->Path(),
        outcome.failure->failure.rank);
}

ExitCode Report(const Error& error) {
  Say(stderr, "adaptive-train: {}\n", error.message);
  return error.exit_code;
}

/// A local run that never had a plan has nothing to keep.
void RemoveUnusedFolder(Prepared& run) {
  if (run.folder && !run.allocation.in_slurm) run.folder->RemoveIfUnused();
}

/// From the checks to the end of training. An error means that the run ended before its ranks were
/// launched.
Result<RunOutcome> PlanAndTrain(Prepared& run, JobLedger& ledger, RunStatistics& statistics,
                                HeldSignals& held) {
  if (auto ready = MakeReady(run, ledger); !ready) return tl::unexpected(ready.error());
  Say(stdout, "adaptive-train {}: {} on {}, run folder {}\n", ADAPTIVE_TRAIN_VERSION,
      run.allocation.in_slurm ? "job " + run.allocation.ShownId() : std::string("local run"),
      run.allocation.cluster, run.folder->Path());
  auto cluster = PhotographCluster(run);
  if (!cluster) return tl::unexpected(cluster.error());
  ledger.Nodes(cluster->nodes);
  auto profile = ProfileNodes(run, *cluster, ledger);
  if (!profile) return tl::unexpected(profile.error());
  ledger.FindOutEarlierEndings(run.allocation.user);
  const auto gathered = Gather(run, std::move(*cluster), std::move(*profile));
  if (!gathered) return tl::unexpected(gathered.error());
  auto plan = PlanRun(run, gathered->inputs);
  if (!plan) return tl::unexpected(plan.error());
  if (auto known = CheckInjections(run.injections, *plan); !known)
    return tl::unexpected(known.error());
  ledger.Planned(*plan);
  return TrainRun({run.config, run.allocation, run.programs, gathered->inputs, gathered->spares,
                   *run.folder, ledger, statistics, run.injections},
                  std::move(*plan), held);
}

}  // namespace

ExitCode RunTraining(const RunRequest& request) {
  // A reader that is gone, or a file at its size limit, must be an error, not a signal that ends
  // us.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  HeldSignals held;
  auto run = Prepare(request);
  if (!run) return Report(run.error());
  const auto& options = run->allocation.options;
  auto ledger = JobLedger::Begin({&run->allocation, run->run_dir, ToToml(run->config),
                                  options ? FormatJobOptions(*options) : "", request.store});
  if (!ledger) return Report(ledger.error());
  // From here on every end of the run is recorded.
  RunStatistics statistics;
  const auto outcome = PlanAndTrain(*run, *ledger, statistics, held);
  if (!outcome) {
    RunOutcome early;
    early.code = outcome.error().exit_code;
    early.message = outcome.error().message;
    ledger->Finish(early, statistics);
    RemoveUnusedFolder(*run);
    return Report(outcome.error());
  }
  ledger->Finish(*outcome, statistics);
  PrintEnd(*run, *outcome, statistics, ledger->Retries());
  return outcome->code;
}

}  // namespace adaptive_train
