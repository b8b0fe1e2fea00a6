#include "launcher/run/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "launcher/measure/profile_reuse.h"
#include "launcher/report/loss_watch.h"
#include "launcher/report/progress.h"
#include "launcher/run/end_watch.h"
#include "launcher/run/folder_writer.h"
#include "launcher/run/injections.h"
#include "launcher/run/known_checkpoint.h"
#include "launcher/run/memory_save.h"
#include "launcher/run/metrics_writer.h"
#include "launcher/run/plan_files.h"
#include "launcher/run/rank_launches.h"
#include "launcher/run/ready_plans.h"
#include "launcher/run/rebalancer.h"
#include "launcher/run/recovery.h"
#include "launcher/run/skip_watch.h"
#include "launcher/steps/slurm_step.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kWriteDeadline{60};
/// After the last plan, for what is left of its job steps.
constexpr std::chrono::seconds kEndPatience{4};
constexpr std::chrono::seconds kControllerPatience{5};
/// The size of a checkpoint: float32 parameters and both moments.
constexpr double kSavedBytesPerParameter = 12;

/// One run's training, over all of its plans.
class Training {
 public:
  Training(RunParts run, Plan plan)
      : run_(run),
        plan_(std::move(plan)),
        inputs_(run.inputs),
        spares_(run.spares),
        recovery_({run.config.recovery.attempts, run.allocation.OwnNode()}),
        end_(run.allocation.job_id, run.config.checkpoint.before_end_seconds),
        launches_(run.config, run.allocation, run.programs, run.folder.Path()),
        progress_(stdout, run.config.train.steps),
        skips_(run.config.train.skip_limit),
        metrics_(run.folder),
        files_(run.folder),
        injections_(run.injections, run.folder) {}

  RunOutcome Run(HeldSignals& held) {
    RunOutcome outcome = TrainByPlan(held);
    while (Moves(outcome) || Recovers(outcome)) outcome = TrainByPlan(held);
    ending_.Await(kEndPatience);
    progress_.End();
    if (NeedsMemory(outcome)) SaveMemory();
    if (no_plan_ && saved_.Exists()) outcome.code = ExitCode::kRequeue;
    launches_.RemoveKeptHere();
    Finish(outcome);
    const std::int64_t last = committed_.value_or(0);  // the last ranks may have come to no step
    if (outcome.unsaved) outcome.message += "; " + saved_.WhatIsLost(last);
    if (outcome.failure && !outcome.stop_asked && saved_.Exists())
      outcome.message += "; " + saved_.HowToGoOn(last, run_.folder.Path(), run_.allocation);
    return outcome;
  }

 private:
  /// Whether the ranks have saved for a better plan; it is the plan then.
  bool Moves(RunOutcome& outcome) {
    if (!outcome.moved || outcome.last_step >= run_.config.train.steps) return false;
    if (slow_) return Take(PlanWithoutSlow(*std::exchange(slow_, std::nullopt)), outcome);
    if (!next_) return false;
    left_ = plan_;
    return Take(std::move(*next_), outcome);
  }

  /// Whether the run goes on after a failure; the plan is one for the nodes that are left then.
  bool Recovers(RunOutcome& outcome) {
    const auto lost = recovery_.After(outcome);
    if (!lost) return false;
    cut_off_ = IsCutOff(lost->nodes);
    if (cut_off_) {
      outcome.code = ExitCode::kRequeue;
      outcome.message = "no other node is heard, nor Slurm's controller: this node is cut off";
      return false;
    }
    if (!failed_at_) failed_at_ = outcome.failed_at;
    run_.ledger.Failed(*outcome.failure);
    progress_.Notice(outcome.message);
    next_.reset();
    history_.before.reset();  // it may use what is lost
    slow_.reset();
    deed_.reset();
    auto ready = ready_.Take(lost->nodes, inputs_, spares_);
    const std::string without = ReplaceLost(lost->nodes, inputs_.cluster, spares_);
    if (lost->nodes.empty()) {
      if (auto plan = PlanWithout(lost->doubtful)) return Take(std::move(*plan), outcome);
    }
    TellGoingOn(without);
    if (lost->nodes.empty()) return true;
    if (ready) progress_.Notice(fmt::format("the plan without {} was ready", lost->nodes.front()));
    auto plan = Runnable(ready ? Result<Plan>(std::move(*ready)) : PlanFor(inputs_));
    if (!plan)
      if (auto with_doubted = PlanWithDoubted()) plan = std::move(*with_doubted);
    if (plan) return Take(std::move(*plan), outcome);
    no_plan_ = true;
    outcome.code = plan.error().exit_code;
    outcome.message += fmt::format("; no plan{}: {}", without, plan.error().message);
    return false;
  }

  /// Steps that only memory has: of one node, as nothing is heard of others any more.
  void SaveMemory() {
    const StopLimits limits = end_.LimitsNow();
    const std::int64_t committed = committed_.value_or(0), least = saved_.Step() + 1;
    if (!plan_.orders.keeping.on || cut_off_ || committed < least || !limits.too_long.empty())
      return;
    const CheckpointConfig& config = run_.config.checkpoint;
    const auto step =
        SaveFromMemory({run_.programs.worker, run_.folder.Path(), launches_.KeptHere(), least,
                        committed, std::chrono::seconds(config.patience_s), limits.end_s});
    if (!step) return progress_.Notice("this node's memory is not saved: " + step.error().message);
    saved_.Add(Saved{*step, CheckpointFolder(config.dir).PathOf(*step), 0});
    progress_.Notice(fmt::format("saved step {} from this node's memory", *step));
  }

  /// Whether it is this node that was lost, not all others. Elsewhere the job may be queued again, and
  /// two runs must not share a folder.
  bool IsCutOff(const std::vector<std::string>& lost) const {
    const std::string own = run_.allocation.OwnNode();
    // Nothing is heard of nodes without ranks, which have no devices here.
    const bool alone = std::ranges::all_of(inputs_.cluster.devices, [&](const Device& device) {
      return device.node == own || std::ranges::find(lost, device.node) != lost.end();
    });
    return run_.allocation.in_slurm && alone && !lost.empty() &&
           !ControllerAnswers(run_.allocation.job_id, kControllerPatience);
  }

  void TellGoingOn(const std::string& without) {
    progress_.Notice(
        fmt::format("going on{} (failure {} of this run)", without, recovery_.Count()));
  }

  /// Keeps a node aside on which a process ended twice in a row, where the others suffice for a plan.
  std::optional<Plan> PlanWithout(const std::string& doubtful) {
    if (doubtful.empty()) return std::nullopt;
    PlanInputs others = inputs_;
    std::vector<SpareNode> spares = spares_, aside = {{doubtful, ""}};
    KeepAside(aside, others.cluster);
    const std::string instead = TakeSpare(others.cluster, spares);
    if (others.cluster.devices.empty()) return std::nullopt;
    auto plan = Runnable(PlanFor(others));
    if (!plan) return std::nullopt;
    inputs_ = std::move(others);
    spares_ = std::move(spares);
    doubted_.push_back(std::move(aside.front()));
    TellGoingOn(fmt::format(" without {}{}, where a rank ended twice in a row", doubtful, instead));
    return std::move(*plan);
  }

  /// Takes nodes back that were kept aside so, as few as are enough for a plan.
  std::optional<Plan> PlanWithDoubted() {
    PlanInputs more = inputs_;
    std::vector<SpareNode> left = doubted_;
    for (std::string names; !left.empty(); names = ", " + names) {
      PutIn(left.back(), more.cluster);
      names = left.back().node + names;
      left.pop_back();
      auto plan = Runnable(PlanFor(more));
      if (!plan) continue;
      inputs_ = std::move(more);
      doubted_ = std::move(left);
      progress_.Notice(
          fmt::format("taking {} back, as the other nodes are not enough for a plan", names));
      return std::move(*plan);
    }
    return std::nullopt;
  }

  /// The ranks' next plan. False: the run ends with `outcome`.
  bool Take(Plan plan, RunOutcome& outcome) {
    plan_ = std::move(plan);
    next_.reset();
    rebalancer_.reset();
    may_move_after_warmup_ = false;
    auto written = files_.Finish(kWriteDeadline);  // the plan before must not come after it
    if (written) written = WritePlan(run_.folder, plan_, inputs_);
    if (!written) {
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
    const JobStepSpec spec = launches_.Next(plan_, committed_);
    run_.ledger.BeginLaunches();
    RunOutcome outcome;
    if (auto written = injections_.BeginRanks(); !written) {
      outcome.code = written.error().exit_code;
      outcome.message = written.error().message;
      return outcome;
    }
    launched_ = RunningClock::now();
    Supervisor supervisor(spec, run_.allocation.in_slurm ? SlurmSteps() : LocalSteps(), Events(),
                          ending_);
    supervisor_ = &supervisor;
    held.Release();
    outcome = supervisor.Run();
    launches_.LearnFrom(outcome);
    held.Hold();  // a second Ctrl-C must not keep the end out of the store
    if (outcome.failure) NameKind(*outcome.failure);
    supervisor_ = nullptr;
    replanner_.reset();
    return outcome;
  }

  /// What ranks and signs alone do not show.
  void NameKind(Diagnosis& failure) const {
    failure.failure.kind =
        injections_.Explain(failure) ? FailureKind::kInjected : recovery_.KindOf(failure);
  }

  std::unique_ptr<Replanner> NewReplanner() const {
    ReplanWatch::Settings settings;
    settings.ranks = plan_.ranks.size();
    // Steps of a round are unlike: a few of them say little of the plan's mean.
    settings.after_warmup = may_move_after_warmup_ && RoundOf(plan_) == 1;
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
    events.on_stop = [this] { return end_.LimitsOfStop(); };
    events.on_poll = [this] {
      WatchJobEnd();
      TellUnwritten();
    };
    events.on_injected = [this](int rank, const std::string& fault) {
      if (injections_.Happened(rank, fault))
        progress_.Notice(fmt::format("injected: {} (rank {})", fault, rank));
    };
    events.on_decision = [this](const Decision& decision) { OnDecision(decision); };
    events.on_resumed = [this](const Resumed& resumed) { return OnResumed(resumed); };
    events.on_step = [this](std::span<const RankMetrics> ranks) { return OnStep(ranks); };
    events.on_layer_times = [this](int rank, const LayerTimes& times) {
      if (replanner_->Measured(rank, times)) KeepLayerTimes();
    };
    events.on_saved = [this](const Saved& saved) {
      last_save_s_ = saved.seconds;
      end_.Saved(saved.seconds);
      saved_.Add(saved);
      progress_.Notice(fmt::format("saved step {}: {}", saved.step, saved.path));
    };
    return events;
  }

  Result<void> OnResumed(const Resumed& resumed) {
    const std::int64_t step = resumed.step;
    const std::int64_t steps = run_.config.train.steps;
    last_launch_s_ = std::chrono::duration<double>(RunningClock::now() - launched_).count();
    if (!resumed_) resumed_ = step > 0;
    saved_.Add(resumed);
    // It may be newer than what all have reported.
    const std::int64_t lost = std::max<std::int64_t>(0, committed_.value_or(step) - step);
    committed_ = step;
    if (step == 0 && recovery_.Count() > 0)
      progress_.Notice("there is no checkpoint: training begins again");
    if (step > 0)
      progress_.Notice(fmt::format("resumed from the {} of step {}",
                                   resumed.from_memory ? "memory" : "checkpoint", step));
    if (failed_at_) TellRecovery(*std::exchange(failed_at_, std::nullopt), lost);
    if (step >= steps) progress_.Notice(fmt::format("nothing left to do: train.steps = {}", steps));
    losses_ = LossWatch();
    PrepareForLoss();
    if (rebalancer_) rebalancer_->BeginLaunch();
    if (run_.config.profile.warmup_steps == 0) WatchSpeed();
    return metrics_.ResumeAfter(step);
  }

  void WatchJobEnd() {
    const auto [act, left_s] = end_.Poll();
    switch (act) {
      case SaveBeforeEnd::Act::kNothing:
        return;
      case SaveBeforeEnd::Act::kMeasure:
        return supervisor_->Save();
      case SaveBeforeEnd::Act::kEnd:
        return supervisor_->StopForLater(
            fmt::format("the end of the job's time in {:.0f} s", left_s));
    }
  }

  void TellRecovery(RunningClock::time_point failed_at, std::int64_t lost) {
    progress_.Notice(
        fmt::format("training again {:.2f} s after the failure was seen, {} step{} lost",
                    std::chrono::duration<double>(RunningClock::now() - failed_at).count(), lost,
                    lost == 1 ? "" : "s"));
  }

  /// Lets plans be made, from what is known now, for the loss of each node.
  void PrepareForLoss() {
    if (run_.config.recovery.attempts > 0 || !spares_.empty())
      ready_.Prepare(inputs_, spares_, run_.allocation.OwnNode());
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
    end_.Step(step.step_s, RoundOf(plan_));
    progress_.Step(step, verdict);
    const std::int64_t left = run_.config.train.steps - step.step;
    if (!slow_) Act(replanner_->AfterStep(step.step_s, left, Cost()));
    if (rebalancer_ && !next_ && !slow_ && left > 0)
      Rebalance(step.step, rebalancer_->AfterStep(ranks, step.step_s,
                                                  Cost().Seconds() / static_cast<double>(left)));
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

  /// From when on ranks are compared with the plan: when their speed is known.
  void WatchSpeed() {
    if (rebalancer_ || plan_.data < 2) return;
    auto planned = PlaceSecondsOf(plan_, inputs_.cluster, inputs_.dims, inputs_.format,
                                  inputs_.profile, inputs_.request);
    if (!planned) return;
    Rebalancer::Settings settings;
    if (inputs_.request.even_shares) settings.fixed = "shares stay even (parallel.shares)";
    for (const Device& device : inputs_.cluster.devices)
      if (!spares_.empty() && !spares_in_vain_ && device.node != run_.allocation.OwnNode())
        settings.replaceable.push_back(device.node);
    settings.deed = std::exchange(deed_, std::nullopt);
    rebalancer_ = std::make_unique<Rebalancer>(plan_, std::move(*planned), std::move(settings));
  }

  /// Later jobs hear of it, once; not of a fault that was asked for.
  void KeepSlow(std::int64_t step, const Rebalancer::Slow& slow) {
    if (!slow_kept_.insert(slow.node).second) return;
    Diagnosis found;
    found.failure = {.rank = slow.rank,
                     .host = slow.node,
                     .operation = "computing",
                     .cause = slow.how,
                     .step = step,
                     .kind = FailureKind::kSlow};
    if (!injections_.Explain(found)) run_.ledger.Failed(found);
  }

  void Rebalance(std::int64_t step, const Rebalancer::Answer& answer) {
    if (answer.slow) KeepSlow(step, *answer.slow);
    if (answer.taken) plan_ = WithShares(std::move(plan_), *answer.taken).value();
    if (!answer.line.empty()) {
      progress_.Notice(answer.line);
      KeepWhy(fmt::format("after step {}: {}", step, answer.line));
    } else if (answer.taken) {
      SavePlanAgain();
    }
    spares_in_vain_ = spares_in_vain_ || answer.in_vain;
    if (answer.ask) supervisor_->ChangeShares(*answer.ask);
    if (!answer.replace) return;
    slow_ = *answer.replace;
    supervisor_->Move();
  }

  /// With a spare in the place of the slow node; where there is no such plan, this one stays.
  Plan PlanWithoutSlow(const std::string& node) {
    const auto inputs = inputs_;
    const auto spares = spares_;
    auto ready = ready_.Take({node}, inputs_, spares_);
    const std::string without = ReplaceLost({node}, inputs_.cluster, spares_);
    auto plan = Runnable(ready ? Result<Plan>(std::move(*ready)) : PlanFor(inputs_));
    if (!plan) {
      inputs_ = inputs;
      spares_ = spares;
      spares_in_vain_ = true;
      progress_.Notice(fmt::format("no plan{}: {}", without, plan.error().message));
      return plan_;
    }
    deed_ = rebalancer_->Replacing();
    history_.before.reset();  // of another plan
    const std::string words = "moving to a plan" + without;
    progress_.Notice(words);
    plan->why.push_back(words + ", which stayed slower than planned");
    return std::move(*plan);
  }

  /// Adds a line to the plan's reasons, in plan.json, plan.txt and the store.
  void KeepWhy(std::string line) {
    plan_.why.push_back(std::move(line));
    SavePlanAgain();
  }

  void SavePlanAgain() {
    run_.ledger.Planned(plan_);
    WritePlan(files_, plan_, inputs_);
  }

  void TellUnwritten() {
    if (const auto failed = files_.TakeFailure())
      progress_.Notice("a file of the run folder is not complete: " + failed->message);
  }

  /// For the next job, and for this run's next plan.
  void KeepLayerTimes() {
    Profile fresh;
    fresh.layers = RecordsOf(inputs_, plan_, replanner_->Times());
    run_.ledger.Measured(inputs_.cluster.name, fresh);
    inputs_.profile = WithMeasured(std::move(inputs_.profile), fresh);
    files_.Write("profile.json", ToJson(inputs_.profile));
    PrepareForLoss();
    WatchSpeed();
  }

  void Finish(RunOutcome& outcome) {
    if (const auto described = files_.Finish(kWriteDeadline); !described)
      progress_.Notice(described.error().message);
    TellUnwritten();
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
  std::vector<SpareNode> spares_, doubted_;  // kept aside
  Recovery recovery_;
  EndWatch end_;
  ReadyPlans ready_{PlanFor};
  RankLaunches launches_;
  std::optional<std::int64_t> committed_;  // the step of the last line of metrics.jsonl
  KnownCheckpoint saved_;
  Progress progress_;
  LossWatch losses_;
  SkipWatch skips_;
  std::optional<bool> resumed_;  // whether this run began from a checkpoint
  MetricsWriter metrics_;
  FolderWriter files_;
  Injections injections_;
  std::unique_ptr<Replanner> replanner_;
  EndingSteps ending_;
  std::unique_ptr<Rebalancer> rebalancer_;
  std::optional<std::string> slow_;  // a node whose place a spare takes when ranks have stopped
  std::optional<Rebalancer::Deed> deed_;    // that the next plan's ranks show the effect of
  std::set<std::string> slow_kept_;         // nodes whose slowness is in the store
  bool cut_off_ = false, no_plan_ = false;  // why the run ends
  bool spares_in_vain_ = false;             // no other spare is to take a slow node's place
  Supervisor* supervisor_ = nullptr;
  bool may_move_after_warmup_ = true;
  RunningClock::time_point launched_;
  std::optional<RunningClock::time_point> failed_at_;  // until training goes on
  std::optional<double> last_save_s_, last_launch_s_;
};

}  // namespace

RunOutcome TrainRun(RunParts run, Plan plan, HeldSignals& held) {
  return Training(run, std::move(plan)).Run(held);
}

}  // namespace adaptive_train
