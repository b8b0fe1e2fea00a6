#include "launcher/run/training.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/kept_folder.h"
#include "core/token_proof.h"
#include "launcher/measure/profile_reuse.h"
#include "launcher/planner/plan_words.h"
#include "launcher/report/loss_watch.h"
#include "launcher/report/progress.h"
#include "launcher/run/metrics_writer.h"
#include "launcher/run/recovery.h"
#include "launcher/run/skip_watch.h"
#include "launcher/steps/rank_environment.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kWriteDeadline{60};
constexpr const char* kHere = "127.0.0.1";
/// The size of a checkpoint: float32 parameters and both moments.
constexpr double kSavedBytesPerParameter = 12;

std::string WordsOf(const Plan& plan, const PlanInputs& inputs) {
  return DescribePlan(plan, inputs.cluster, ModelShape::Of(inputs.dims, inputs.format));
}

Result<void> SavePlan(const RunFolder& folder, const Plan& plan, const PlanInputs& inputs) {
  auto written = folder.Write("plan.json", ToJson(plan));
  if (written) written = folder.Write("plan.txt", WordsOf(plan, inputs) + ExplainPlan(plan));
  return written;
}

/// The node that this process runs on, as the plan names it; empty: it trains on none of them.
std::string OwnNode(const Allocation& allocation) {
  if (!allocation.in_slurm) return allocation.hosts.front();
  const char* name = std::getenv("SLURMD_NODENAME");
  return name == nullptr ? "" : name;
}

std::string JobOf(const Allocation& allocation) {
  return std::to_string(allocation.in_slurm ? allocation.job_id : 0);
}

/// One run's training, over all of its plans.
class Training {
 public:
  Training(RunParts run, Plan plan)
      : run_(run),
        plan_(std::move(plan)),
        inputs_(run.inputs),
        spares_(run.spares),
        recovery_({run.config.recovery.attempts, OwnNode(run.allocation)}),
        progress_(stdout, run.config.train.steps),
        skips_(run.config.train.skip_limit),
        metrics_(run.folder) {}

  RunOutcome Run(HeldSignals& held) {
    RunOutcome outcome = TrainByPlan(held);
    while (Moves(outcome) || Recovers(outcome)) outcome = TrainByPlan(held);
    progress_.End();
    RemoveKeptHere();
    Finish(outcome);
    if (outcome.failure && !outcome.stop_asked && saved_)
      outcome.message +=
          fmt::format("; the same command with --run-dir {} goes on from the checkpoint of step {}",
                      run_.folder.Path(), *saved_);
    return outcome;
  }

 private:
  /// Whether the ranks have saved for a better plan; it is the plan then.
  bool Moves(RunOutcome& outcome) {
    if (!outcome.moved || !next_ || outcome.last_step >= run_.config.train.steps) return false;
    left_ = plan_;
    return Take(std::move(*next_), outcome);
  }

  /// Whether the run goes on after a failure; the plan is one for the nodes that are left then.
  bool Recovers(RunOutcome& outcome) {
    const auto lost = recovery_.After(outcome);
    if (!lost) return false;
    run_.ledger.Failed(*outcome.failure);
    progress_.Notice(outcome.message);
    next_.reset();
    history_.before.reset();  // it may use what is lost
    const std::string without = ReplaceLost(*lost);
    progress_.Notice(
        fmt::format("going on{} (failure {} of this run)", without, recovery_.Count()));
    if (lost->empty()) return true;
    auto plan = PlanFor(inputs_);
    if (plan) {
      if (auto runs = CheckRunnable(*plan); !runs) plan = tl::unexpected(runs.error());
    }
    if (plan) return Take(std::move(*plan), outcome);
    outcome.code = saved_ ? ExitCode::kRequeue : plan.error().exit_code;
    outcome.message += fmt::format("; no plan{}: {}", without, plan.error().message);
    return false;
  }

  /// Takes lost nodes out and spares in. Returns what was done, to follow "going on".
  std::string ReplaceLost(const std::vector<std::string>& lost) {
    std::string words;
    for (const std::string& node : lost) {
      LeaveOut(node, inputs_.cluster);
      words += (words.empty() ? " without " : ", ") + node;
      if (spares_.empty()) continue;
      PutIn(spares_.back(), inputs_.cluster);
      words += fmt::format(" ({} takes its place)", spares_.back().node);
      spares_.pop_back();
    }
    return words;
  }

  /// The ranks' next plan. False: the run ends with `outcome`.
  bool Take(Plan plan, RunOutcome& outcome) {
    plan_ = std::move(plan);
    next_.reset();
    may_move_after_warmup_ = false;
    if (auto written = WritePlan(run_.folder, plan_, inputs_); !written) {
      outcome.code = written.error().exit_code;
      outcome.message = written.error().message;
      return false;
    }
    run_.ledger.Planned(plan_);
    return true;
  }

  RunOutcome TrainByPlan(HeldSignals& held) {
    replanner_ = NewReplanner();
    run_.statistics.BeginPlan(plan_, run_.config.profile.warmup_steps);
    JobStepSpec spec;
    spec.plan = &plan_;
    spec.run_dir = run_.folder.Path();
    spec.worker = run_.programs.worker;
    spec.saving_patience = std::chrono::seconds(run_.config.checkpoint.patience_s);
    spec.environment = RankEnvironment(CurrentEnvironment());
    spec.environment["ADAPTIVE_TRAIN_MEMORY_KEY"] = memory_key_;
    spec.environment["ADAPTIVE_TRAIN_JOB"] = JobOf(run_.allocation);
    spec.environment["ADAPTIVE_TRAIN_ATTEMPT"] = std::to_string(++attempt_);
    if (committed_) spec.environment["ADAPTIVE_TRAIN_COMMITTED"] = std::to_string(*committed_);
    spec.launch = run_.config.launch;
    spec.first_rank = run_.allocation.in_slurm ? AddressOfNode(plan_.ranks[0].device.node) : kHere;
    run_.ledger.BeginLaunches();
    launched_ = Clock::now();
    Supervisor supervisor(spec, run_.allocation.in_slurm ? SlurmSteps() : LocalSteps(), Events());
    supervisor_ = &supervisor;
    held.Release();
    RunOutcome outcome = supervisor.Run();
    held.Hold();  // a second Ctrl-C must not keep the end out of the store
    supervisor_ = nullptr;
    replanner_.reset();
    return outcome;
  }

  /// What ranks that failed have left in this node's memory; on other nodes, Slurm's epilog does it.
  void RemoveKeptHere() const {
    const std::string prefix =
        KeptFolderPrefix(::geteuid(), JobOf(run_.allocation), OwnNode(run_.allocation));
    (void)RemoveKeptFolders(kKeptRoot, prefix + memory_key_, ::geteuid());
  }

  std::unique_ptr<Replanner> NewReplanner() const {
    ReplanWatch::Settings settings;
    settings.ranks = plan_.ranks.size();
    settings.after_warmup = may_move_after_warmup_;
    settings.on_drift = run_.config.profile.online;
    settings.moved = history_.before.has_value();
    settings.warms_up = run_.config.profile.warmup_steps > 0;
    return std::make_unique<Replanner>(settings, SearchFrom(inputs_, plan_), history_);
  }

  SupervisorEvents Events() {
    SupervisorEvents events;
    events.on_notice = [this](const std::string& text) { progress_.Notice(text); };
    events.on_launch = [this](int attempt, const std::string& outcome, const std::string& reason) {
      run_.ledger.Launched(attempt, outcome, reason);
    };
    events.on_decision = [this](const Decision& decision) { OnDecision(decision); };
    events.on_resumed = [this](const Resumed& resumed) { return OnResumed(resumed); };
    events.on_step = [this](std::span<const RankMetrics> ranks) { return OnStep(ranks); };
    events.on_layer_times = [this](int rank, const LayerTimes& times) {
      if (replanner_->Measured(rank, times)) KeepLayerTimes();
    };
    events.on_saved = [this](const Saved& saved) {
      last_save_s_ = saved.seconds;
      saved_ = saved.step;
      progress_.Notice(fmt::format("saved step {}: {}", saved.step, saved.path));
    };
    return events;
  }

  Result<void> OnResumed(const Resumed& resumed) {
    const std::int64_t step = resumed.step;
    const std::int64_t steps = run_.config.train.steps;
    last_launch_s_ = std::chrono::duration<double>(Clock::now() - launched_).count();
    if (!resumed_) resumed_ = step > 0;
    if (step > 0 && !resumed.from_memory) saved_ = step;
    committed_ = step;
    if (step == 0 && recovery_.Count() > 0)
      progress_.Notice("there is no checkpoint: training begins again");
    if (step > 0)
      progress_.Notice(fmt::format("resumed from the {} of step {}",
                                   resumed.from_memory ? "memory" : "checkpoint", step));
    if (step >= steps) progress_.Notice(fmt::format("nothing left to do: train.steps = {}", steps));
    losses_ = LossWatch();
    return metrics_.ResumeAfter(step);
  }

  /// Adds the ranks' decision to the plan: in the log, plan.json, plan.txt and the store.
  void OnDecision(const Decision& decision) {
    progress_.Notice(decision.text);
    KeepWhy(fmt::format("after step {}: {}", decision.step, decision.text));
  }

  Result<void> OnStep(std::span<const RankMetrics> ranks) {
    StepMetrics step = CombineRanks(ranks);
    const auto verdict = losses_.Judge(step.loss);
    if (verdict) step.loss_z = verdict->z;
    committed_ = step.step;
    run_.statistics.Add(step, verdict && verdict->spike);
    progress_.Step(step, verdict);
    Act(replanner_->AfterStep(step.step_s, run_.config.train.steps - step.step, Cost()));
    if (auto added = metrics_.Add(step); !added) return added;
    return skips_.See(step.step, step.skipped);
  }

  MovingCost Cost() const {
    const auto parameters = static_cast<double>(ModelShape::Of(inputs_.dims).total.parameters);
    return EstimateMovingCost(last_save_s_, kSavedBytesPerParameter * parameters, last_launch_s_);
  }

  void Act(Replanner::Answer answer) {
    if (!answer.line.empty()) progress_.Notice(answer.line);
    if (answer.measure_layers) supervisor_->MeasureLayers();
    if (answer.compared && !answer.go_back) KeepWhy(answer.line);
    if (answer.move_to) {
      history_.before = answer.left;
      next_ = std::move(answer.move_to);
    } else if (answer.go_back) {
      history_.before.reset();
      history_.left.push_back(plan_);
      next_ = left_;
    } else {
      return;
    }
    next_->why.push_back(answer.line);
    supervisor_->Move();
  }

  /// Adds a line to the plan's reasons, in plan.json, plan.txt and the store.
  void KeepWhy(std::string line) {
    plan_.why.push_back(std::move(line));
    run_.ledger.Planned(plan_);
    if (auto written = SavePlan(run_.folder, plan_, inputs_); !written)
      progress_.Notice("plan.json and plan.txt lack it: " + written.error().message);
  }

  /// For the next job, and for this run's next plan.
  void KeepLayerTimes() {
    Profile fresh;
    fresh.layers = RecordsOf(inputs_, plan_, replanner_->Times());
    run_.ledger.Measured(inputs_.cluster.name, fresh);
    inputs_.profile = WithMeasured(std::move(inputs_.profile), fresh);
    if (auto written = run_.folder.Write("profile.json", ToJson(inputs_.profile)); !written)
      progress_.Notice("profile.json is not complete: " + written.error().message);
  }

  void Finish(RunOutcome& outcome) {
    auto written = metrics_.Finish(kWriteDeadline);
    // A resumed run has trained before, so its last step may be a skipped one.
    if (written && outcome.code == ExitCode::kDone && !resumed_.value_or(false))
      written = skips_.AtEnd();
    if (written) return;
    if (outcome.code != ExitCode::kDone) {
      progress_.Notice("metrics.jsonl and tensorboard/ are not complete: " +
                       written.error().message);
      return;
    }
    outcome.code = written.error().exit_code;
    outcome.message = written.error().message;
  }

  RunParts run_;
  Plan plan_;
  std::optional<Plan> next_;  // the plan to start when the ranks have stopped
  Plan left_;                 // the plan before plan_, if any
  PlanHistory history_;
  PlanInputs inputs_;  // with the measurements of this run's ranks, without lost nodes
  std::vector<SpareNode> spares_;
  Recovery recovery_;
  const std::string memory_key_ = NewNonce();  // of states that ranks keep in memory
  std::int64_t attempt_ = 0;                   // launches by plans
  std::optional<std::int64_t> committed_;      // the step of the last line of metrics.jsonl
  std::optional<std::int64_t> saved_;  // the newest checkpoint's step, as far as this run knows
  Progress progress_;
  LossWatch losses_;
  SkipWatch skips_;
  std::optional<bool> resumed_;  // whether this run began from a checkpoint
  MetricsWriter metrics_;
  std::unique_ptr<Replanner> replanner_;
  Supervisor* supervisor_ = nullptr;
  bool may_move_after_warmup_ = true;
  Clock::time_point launched_;
  std::optional<double> last_save_s_, last_launch_s_;
};

}  // namespace

RunOutcome TrainRun(RunParts run, Plan plan, HeldSignals& held) {
  return Training(run, std::move(plan)).Run(held);
}

Result<void> WritePlan(const RunFolder& folder, const Plan& plan, const PlanInputs& inputs) {
  std::fputs(WordsOf(plan, inputs).c_str(), stdout);
  std::fflush(stdout);
  return SavePlan(folder, plan, inputs);
}

}  // namespace adaptive_train
