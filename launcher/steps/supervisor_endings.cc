// How a run of the Supervisor ends: after a diagnosis, for another launch, by a stop, or done.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "launcher/steps/stall_cause.h"
#include "launcher/steps/stop_signals.h"
#include "launcher/steps/supervisor.h"
#include "launcher/steps/wireup_failure.h"

namespace adaptive_train {
namespace {

/// After the first sign of failure others may follow that explain it.
constexpr std::chrono::milliseconds kDiagnosisTime = 1s;
/// Ranks that fell silent together are found so within a heartbeat.
constexpr std::chrono::milliseconds kOthersSilence = kHeartbeatPeriod + 100ms;
/// A rank that is only accused by a peer will be silent before it is certain, and this time more.
constexpr std::chrono::milliseconds kHearsayMargin = 2 * kHeartbeatPeriod;

/// How long a slurmd has to answer at least: TCP sends a first packet that was lost again within
/// it.
constexpr std::chrono::milliseconds kAnswerPatience = 1500ms;

}  // namespace

void Supervisor::BeginDiagnosis() {
  trouble_since_ = RunningClock::now();
  diagnosed_at_ = trouble_since_ + kDiagnosisTime;
  Reconsider();
}

/// A sign that needs no other to explain it ends the diagnosis sooner.
void Supervisor::Reconsider() {
  const auto now = RunningClock::now();
  const auto diagnosis = Diagnose(ranks_);
  if (diagnosis && diagnosis->final) diagnosed_at_ = now;
  if (diagnosis && (diagnosis->failure.kind == FailureKind::kNodeSilent ||
                    diagnosis->failure.kind == FailureKind::kRankSilent))
    diagnosed_at_ = std::min(diagnosed_at_, now + kOthersSilence);
  ArmTimer(std::chrono::ceil<std::chrono::milliseconds>(diagnosed_at_ - now));
}

void Supervisor::ContinueDiagnosis() {
  const auto diagnosis = Diagnose(ranks_);
  // The sign was a rank's end that its farewell has explained since; the others may still be
  // saving.
  if (!diagnosis && step_ && !step_->Over()) {
    return Enter(stop_signal_ == 0 && !moving_ ? State::kTraining : State::kSaving);
  }
  if (diagnosis && diagnosis->hearsay &&
      RunningClock::now() - trouble_since_ < deadlines_.rank_silence + kHearsayMargin) {
    diagnosed_at_ = RunningClock::now() + kDiagnosisTime;
    return ArmTimer(kDiagnosisTime);
  }
  Enter(State::kEnding);
  EndForFailure();
}

/// Whether Slurm did not bring the ranks together and says so. What a step that died has left
/// behind (the socket of a killed slurmstepd) is in the way of one number only. The ranks that
/// Slurm kills for it did not fail.
bool Supervisor::IsLaunchTrouble() const {
  return step_ && step_->TroubleMayPass() && stop_signal_ == 0 &&
         std::none_of(ranks_.begin(), ranks_.end(), [](const RankRecord& rank) {
           return rank.wired || (rank.report && !IsConsequence(*rank.report));
         });
}

void Supervisor::EndForFailure() {
  if (IsLaunchTrouble()) return EndForRetry();
  auto diagnosis = Diagnose(ranks_);
  if (!diagnosis) {
    // No rank shows anything: the step as a whole did not run.
    diagnosis.emplace();
    diagnosis->failure.kind = FailureKind::kLaunch;
    diagnosis->failure.operation = "launch";
    const std::string trouble = step_ ? step_->Trouble() : "";
    diagnosis->failure.cause =
        trouble.empty() ? "the step ended before its ranks said why" : trouble;
  }
  // Ranks that never said hello are explained best by what their step says.
  const int accused = diagnosis->failure.rank;
  if (accused >= 0 && !Record(accused).hello && step_ && !step_->Trouble().empty())
    diagnosis->failure.cause += " (" + step_->Trouble() + ")";
  outcome_.code = ExitCode::kRankFailure;
  outcome_.message = Describe(*diagnosis);
  outcome_.unsaved = gave_up_;
  outcome_.failure = diagnosis;
  outcome_.failed_at = trouble_since_;
  if (state_ != State::kEnding) Enter(State::kEnding);
  if (std::none_of(ranks_.begin(), ranks_.end(), [](const RankRecord& r) { return r.wired; })) {
    events_.on_launch(attempt_, "failed", outcome_.message);
  }
  EndRanks(outcome_.message);
}

/// Where the launch has failed: on a node that Slurm names, or one of which no rank was heard while
/// others were. Empty: neither.
std::string Supervisor::NodeOfFailedLaunch() const {
  if (IsLaunchTrouble()) return step_->TroubledNode();
  const auto heard = [this](const std::string& host) {
    return std::ranges::any_of(
        ranks_, [&](const RankRecord& rank) { return rank.hello && rank.host == host; });
  };
  const auto silent = std::ranges::find_if_not(ranks_, heard, &RankRecord::host);
  return anyone_said_hello_ && silent != ranks_.end() ? silent->host : "";
}

/// Nodes of which no rank was heard, and whose slurmd does not answer either. None where that of a
/// node that was heard is as silent: then a firewall may be in between.
std::vector<std::string> Supervisor::NodesWithoutAnswer() const {
  std::set<std::string> heard;
  for (const RankRecord& rank : ranks_)
    if (rank.hello) heard.insert(rank.host);
  SlurmdPlaces asked;
  std::string control;  // the last one: the first ranks are often on the launcher's own node
  for (const RankRecord& rank : ranks_) {
    const auto place = spec_.slurmds.find(rank.host);
    if (place == spec_.slurmds.end()) continue;
    if (heard.contains(rank.host)) {
      control = rank.host;
    } else {
      asked.insert(*place);
    }
  }
  if (control.empty()) return {};
  asked.insert(*spec_.slurmds.find(control));
  auto silent = SilentAmong(asked, std::max(kAnswerPatience, deadlines_.rank_silence * 3 / 5));
  return std::ranges::find(silent, control) == silent.end() ? silent : std::vector<std::string>();
}

/// A launch has lost nodes of which nothing was heard if their slurmds do not answer either, or a
/// node on which the launch before failed as well. One more is made nevertheless where Slurm says
/// at once what is wrong there, as that may be in the way of one step alone.
void Supervisor::EndForRetry() {
  const bool trouble = IsLaunchTrouble();
  retry_reason_ = trouble ? step_->Trouble() : DescribeWireup(ranks_);
  const std::string node = NodeOfFailedLaunch();
  EndRanks("the launch is given up");
  if (!node.empty() && !trouble) lost_at_launch_ = NodesWithoutAnswer();
  asked_at_launch_ = !lost_at_launch_.empty();
  const bool again = !node.empty() && node == std::exchange(failed_launch_on_, node);
  const bool lost = again || asked_at_launch_;
  retry_ = attempt_ <= kMaxLaunchRetries && (!lost || trouble);
  events_.on_launch(attempt_, retry_ ? "retried" : "failed", retry_reason_);
  if (retry_) {
    events_.on_notice(
        fmt::format("launch {} failed ({}); launching again", attempt_, retry_reason_));
    return;
  }
  if (lost && !asked_at_launch_) lost_at_launch_ = {node};
  Diagnosis diagnosis;
  diagnosis.failure.kind = lost ? FailureKind::kNodeSilent : FailureKind::kLaunch;
  diagnosis.failure.operation = "wire-up";
  diagnosis.failure.host = lost ? lost_at_launch_.front() : node;
  diagnosis.failure.cause =
      asked_at_launch_ ? fmt::format("{}, and the slurmd of {} does not answer", retry_reason_,
                                     fmt::join(lost_at_launch_, ", of "))
                       : fmt::format("{} launches failed, the last: {}", attempt_, retry_reason_);
  outcome_.code = ExitCode::kRankFailure;
  outcome_.failure = diagnosis;
  outcome_.failed_at = RunningClock::now();
  outcome_.message = Describe(diagnosis);
}

std::string Supervisor::StopWords() const {
  if (!stop_words_.empty()) return stop_words_;
  return fmt::format("{}{}", ::strsignal(stop_signal_), requeue_ ? " from Slurm" : "");
}

ExitCode Supervisor::StopCode() const {
  if (requeue_) return ExitCode::kRequeue;
  return stop_signal_ == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
}

void Supervisor::EndForStop() {
  const Error stopped = StoppedBy(stop_signal_);
  outcome_.code = StopCode();
  outcome_.message = stopped.message;
  EndRanks(outcome_.message);
}

/// A person has asked twice.
void Supervisor::EndAtOnce() {
  outcome_.at_once = true;
  if (outcome_.code == ExitCode::kDone) {
    outcome_.code = StopCode();
    outcome_.message = "stopped at once";
    outcome_.unsaved = true;
  }
  EndRanks("stopped at once");
}

void Supervisor::EndUnsaved() {
  if (outcome_.code == ExitCode::kDone) NoteUnsaved();
  EndRanks("the state could not be saved in time");
}

void Supervisor::NoteUnsaved() {
  outcome_.code = requeue_ ? ExitCode::kRequeue : ExitCode::kRankFailure;
  const std::string what = stop_signal_ != 0 ? fmt::format("stopped by {}", StopWords())
                                             : "stopped on the way to a new plan,";
  outcome_.message = fmt::format("{} without saving: {}", what, WhyUnsaved());
  outcome_.unsaved = true;
}

/// The ranks that did not come to saving, or that it did not go on.
std::string Supervisor::WhyUnsaved() const {
  if (!too_long_.empty()) return too_long_;
  if (last_save_ && end_at_ && RunningClock::now() >= *end_at_)
    return "the save was not complete when the job's time was over";
  if (last_save_) return "the save has not moved for checkpoint.patience_s";
  if (!gave_up_) return "the step under way did not end";
  const std::vector<int> missing = sums_.Missing();
  return fmt::format("{} {} still in the step under way", NameRanks(missing),
                     missing.size() == 1 ? "is" : "are");
}

/// Their ranks fell silent, or never said hello while others did, or could not be launched there.
std::vector<std::string> Supervisor::SilentNodes() const {
  std::vector<std::string> nodes = lost_at_launch_;
  for (const RankRecord& rank : ranks_) {
    const bool absent =
        !asked_at_launch_ && !rank.hello && anyone_said_hello_ && rank.order_ended == 0;
    if ((rank.order_silent != 0 || absent) && !rank.goodbye) nodes.push_back(rank.host);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

/// Before ranks are wired up, Slurm kills one that cannot reach a node. It may do so before the
/// launcher misses that node, which is the cause all the same.
void Supervisor::BlameSilentRank() {
  RankFailure& failure = outcome_.failure->failure;
  const auto silent = std::ranges::find_if(ranks_, [&](const RankRecord& rank) {
    return rank.order_silent != 0 && !rank.goodbye && rank.host != failure.host;
  });
  if (failure.kind != FailureKind::kKilled || silent == ranks_.end() ||
      std::ranges::any_of(ranks_, &RankRecord::wired))
    return;
  RankFailure cause;
  cause.kind = FailureKind::kNodeSilent;
  cause.rank = static_cast<int>(silent - ranks_.begin());
  cause.host = silent->host;
  cause.operation = "wire-up";
  cause.cause = fmt::format("its node or link is down, for which rank {} on {} was killed",
                            failure.rank, failure.host);
  failure = std::move(cause);
  outcome_.message = Describe(*outcome_.failure);
}

void Supervisor::EndRanks(const std::string& reason) {
  if (control_) control_->SendAll(Abort{reason});
  if (step_) step_->Kill(step_id_);
}

void Supervisor::AfterStep() {
  if (outcome_.code != ExitCode::kDone) return;
  outcome_.moved = moving_ && stop_signal_ == 0;
  if (stop_signal_ == 0) return;
  if (!too_long_.empty() && saved_step_ != outcome_.last_step) return NoteUnsaved();
  outcome_.code = StopCode();
  outcome_.message = fmt::format("stopped by {} after saving", StopWords());
}

/// The training is done and saved; a process that does not end by itself is ended.
void Supervisor::EndLingering() {
  AfterStep();
  EndRanks("the run is over");
}

void Supervisor::AfterEnding() {
  ending_.Take(std::move(step_));
  if (retry_ && stop_signal_ == 0) {
    control_.reset();
    StartAttempt();
  } else if (retry_) {
    EndForStop();
  }
}

}  // namespace adaptive_train
