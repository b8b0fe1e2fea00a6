#include "launcher/training_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>

#include "core/file_io.h"
#include "core/job_env.h"
#include "launcher/allocation.h"
#include "launcher/job_ledger.h"
#include "launcher/metrics_writer.h"
#include "launcher/node_check.h"
#include "launcher/planner/devices.h"
#include "launcher/planner/planner.h"
#include "launcher/programs.h"
#include "launcher/rank_environment.h"
#include "launcher/report/loss_watch.h"
#include "launcher/report/progress.h"
#include "launcher/report/run_statistics.h"
#include "launcher/run_folder.h"
#include "launcher/stop_signals.h"
#include "launcher/supervisor.h"
#include "runtime/data/token_dataset.h"

namespace adaptive_train {
namespace {

/// Prints without failing: a reader that is gone, or a full disk behind the output, must not end a
/// run.
template <class... Arguments>
void Say(std::FILE* out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), out);
}

constexpr double kGiB = 1 << 30;
constexpr std::chrono::seconds kWriteDeadline{60};

/// What is known before a job exists in the store.
struct Prepared {
  Config config;
  Allocation allocation;
  StoreLocation store;
  RunFolder folder;
  Programs programs;
  std::string options;
  double unigram_entropy = 0;
  std::vector<std::string> data_files;
};

RunOwner OwnerOf(const Allocation& a) {
  return {a.cluster, a.job_id, a.restart_count, a.submit_time};
}

std::string RunDirOf(const RunRequest& request, const Allocation& allocation) {
  if (!request.run_dir.empty()) return request.run_dir;
  if (!allocation.in_slurm)
    return fmt::format("runs/{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  const std::string plain = fmt::format("runs/{}", allocation.job_id);
  if (RunFolder::MayBelongTo(plain, OwnerOf(allocation))) return plain;
  // A cluster that was set up anew counts its jobs from 1 again: never take up a stranger's
  // checkpoints.
  return fmt::format("{}-{:%Y%m%d-%H%M%S}", plain,
                     fmt::localtime(static_cast<std::time_t>(allocation.submit_time)));
}

Result<std::string> JobOptionsText() {
  const char* text = std::getenv(kJobOptionsVariable);
  if (text == nullptr) return std::string();
  auto options = ParseJobOptions(text);
  if (!options) return FailIn(kJobOptionsVariable, options.error());
  if (options->spares > 0)
    Say(stdout, "note: spares={} has no effect: this version does not recover lost nodes\n",
        options->spares);
  return FormatJobOptions(*options);
}

struct CheckedData {
  double unigram_entropy;
  std::vector<std::string> files;
  std::string description;
};

/// The data as this host sees it: there, large enough for one batch; and what a model must beat.
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

Result<Prepared> Prepare(const RunRequest& request) {
  auto config = LoadConfig(request.config, request.overrides);
  if (!config) return tl::unexpected(config.error());
  auto store = ParseStoreLocation(request.store);
  if (!store) return tl::unexpected(store.error());
  auto options = JobOptionsText();
  if (!options) return tl::unexpected(options.error());
  auto programs = FindPrograms();
  if (!programs) return tl::unexpected(programs.error());
  auto allocation = FindAllocation();
  if (!allocation) return tl::unexpected(allocation.error());
  auto data = CheckData(*config);
  if (!data) return tl::unexpected(data.error());
  Say(stdout, "data.train: {}: {}\n", config->data.train, data->description);
  auto folder = RunFolder::Open(RunDirOf(request, *allocation));
  if (!folder) return tl::unexpected(folder.error());
  if (config->checkpoint.dir == "auto") config->checkpoint.dir = folder->Path() + "/checkpoints";
  config->checkpoint.dir =
      std::filesystem::absolute(config->checkpoint.dir).lexically_normal().string();
  auto written = folder->SetOwner(OwnerOf(*allocation));
  if (written) written = folder->Write("config.resolved.toml", ToToml(*config));
  if (!written) return tl::unexpected(written.error());
  return Prepared{std::move(*config),    std::move(*allocation), std::move(*store),
                  std::move(*folder),    std::move(*programs),   std::move(*options),
                  data->unigram_entropy, std::move(data->files)};
}

Result<Cluster> PhotographCluster(const Prepared& run) {
  NodeCheckRequest request;
  request.job_id = run.allocation.job_id;
  request.prolog_expected = !run.options.empty();
  request.run_dir = run.folder.Path();
  request.readable = run.data_files;
  auto checks = CheckAllNodes(run.allocation, request, run.programs.self, run.programs.probe);
  if (!checks) return tl::unexpected(checks.error());
  Cluster cluster;
  cluster.name = run.allocation.cluster;
  for (const NodeCheck& check : *checks) {
    const Node& node = check.node;
    Say(stdout, "  {}: {}, {} of {} cores, {:.1f} GiB, {} GPU{} (snapshot by {})\n", node.name,
        node.processors.model.empty() ? "unknown processor" : node.processors.model,
        node.processors.allowed_cores, node.processors.cores,
        static_cast<double>(node.memory.total_bytes) / kGiB, node.gpus.size(),
        node.gpus.size() == 1 ? "" : "s", node.source == "prolog" ? "the prolog" : "the user");
    if (!check.note.empty()) Say(stdout, "    note: {}\n", check.note);
    cluster.nodes.push_back(node);
  }
  cluster.devices = DevicesOf(cluster.nodes, run.allocation.cpus);
  auto written = run.folder.Write("cluster.json", ToJson(cluster));
  if (!written) return tl::unexpected(written.error());
  return cluster;
}

Result<Plan> PlanRun(const Prepared& run, const Cluster& cluster) {
  const Config& c = run.config;
  const ModelShape shape = ModelShape::Of(DimsOf(c.model), FormatOf(c.train));
  auto plan =
      MakePlan(cluster, shape,
               {c.train.global_batch, c.train.micro_batch, c.parallel.data, c.device.threads});
  if (!plan) return plan;
  const std::string words = DescribePlan(*plan, cluster, shape);
  Say(stdout, "{}", words);
  std::fflush(stdout);
  auto written = run.folder.Write("plan.json", ToJson(*plan));
  if (written) written = run.folder.Write("plan.txt", words);
  if (!written) return tl::unexpected(written.error());
  return plan;
}

RunOutcome Train(Prepared& run, const Plan& plan, HeldSignals& held, JobLedger& ledger,
                 RunStatistics& statistics) {
  Progress progress(stdout, run.config.train.steps);
  LossWatch losses;
  MetricsWriter metrics(run.folder);
  SupervisorEvents events;
  events.on_notice = [&](const std::string& text) { progress.Notice(text); };
  events.on_launch = [&](int attempt, const std::string& outcome, const std::string& reason) {
    ledger.Launched(attempt, outcome, reason);
  };
  events.on_resumed = [&](std::int64_t step) {
    if (step > 0) progress.Notice(fmt::format("resumed from the checkpoint of step {}", step));
    if (step >= run.config.train.steps) {
      progress.Notice(fmt::format("nothing left to do: train.steps = {}", run.config.train.steps));
    }
    losses = LossWatch();
    return metrics.ResumeAfter(step);
  };
  events.on_step = [&](std::span<const RankMetrics> ranks) {
    StepMetrics step = CombineRanks(ranks);
    const auto verdict = losses.Judge(step.loss);
    if (verdict) step.loss_z = verdict->z;
    statistics.Add(step, verdict && verdict->spike);
    progress.Step(step, verdict);
    return metrics.Add(step);
  };
  events.on_saved = [&](const Saved& saved) {
    progress.Notice(fmt::format("saved step {}: {}", saved.step, saved.path));
  };
  StepSpec spec;
  spec.plan = &plan;
  spec.run_dir = run.folder.Path();
  spec.worker = run.programs.worker;
  spec.environment = RankEnvironment(CurrentEnvironment());
  Supervisor supervisor(spec, run.allocation.in_slurm ? SlurmSteps() : LocalSteps(),
                        std::move(events));
  held.Release();
  RunOutcome outcome = supervisor.Run();
  held.Hold();  // a second Ctrl-C must not keep the end from the store
  progress.End();
  auto written = metrics.Finish(kWriteDeadline);
  if (!written && outcome.code != ExitCode::kDone) {
    progress.Notice("metrics.jsonl and tensorboard/ are not complete: " + written.error().message);
  } else if (!written) {
    outcome.code = written.error().exit_code;
    outcome.message = written.error().message;
  }
  return outcome;
}

void PrintEnd(const Prepared& run, const RunOutcome& outcome, const RunStatistics& statistics,
              int retries) {
  Say(stdout, "{}", DescribeRun(statistics, run.unigram_entropy, retries));
  Say(stdout, "run folder: {}\n", run.folder.Path());
  std::fflush(stdout);
  if (outcome.code == ExitCode::kDone) return;
  Say(stderr, "adaptive-train: {}\n", outcome.message);
  if (outcome.failure && outcome.failure->failure.rank >= 0)
    Say(stderr, "adaptive-train: its log: {}/logs/rank-{}.log\n", run.folder.Path(),
        outcome.failure->failure.rank);
}

ExitCode Report(const Error& error) {
  std::fflush(stdout);
  Say(stderr, "adaptive-train: {}\n", error.message);
  return error.exit_code;
}

}  // namespace

ExitCode RunTraining(const RunRequest& request) {
  // A reader of our output that goes away, or a file at its limit, is an error like others, not our
  // end.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  HeldSignals held;
  auto run = Prepare(request);
  if (!run) return Report(run.error());
  Say(stdout, "adaptive-train {}: {} on {}, run folder {}\n", ADAPTIVE_TRAIN_VERSION,
      run->allocation.in_slurm ? fmt::format("job {}", run->allocation.job_id)
                               : std::string("local run"),
      run->allocation.cluster, run->folder.Path());
  auto ledger = JobLedger::Begin(
      run->store, {&run->allocation, run->folder.Path(), ToToml(run->config), run->options});
  if (!ledger) return Report(ledger.error());
  RunStatistics statistics;
  // From here on the job is in the store: whatever ends it is recorded there.
  auto end_early = [&](const Error& error) {
    RunOutcome outcome;
    outcome.code = error.exit_code;
    ledger->Finish(outcome, statistics);
    return Report(error);
  };
  auto cluster = PhotographCluster(*run);
  if (!cluster) return end_early(cluster.error());
  ledger->Nodes(cluster->nodes);
  auto plan = PlanRun(*run, *cluster);
  if (!plan) return end_early(plan.error());
  ledger->Planned(*plan);
  const RunOutcome outcome = Train(*run, *plan, held, *ledger, statistics);
  ledger->Finish(outcome, statistics);
  PrintEnd(*run, outcome, statistics, ledger->Retries());
  if (ledger->Trouble() && outcome.code == ExitCode::kDone) return Report(*ledger->Trouble());
  if (ledger->Trouble()) Report(*ledger->Trouble());
  return outcome.code;
}

}  // namespace adaptive_train
