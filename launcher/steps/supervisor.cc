#include "launcher/steps/supervisor.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>

#include "core/file_io.h"
#include "core/rank_exit.h"
#include "core/token_proof.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollPeriod{50};
/// After the first sign of failure others may follow that explain it.
constexpr std::chrono::milliseconds kDiagnosisTime = 1s;
/// A rank that is only accused by a peer will be silent for this long before it is certain.
constexpr std::chrono::milliseconds kHearsayTime = kRankSilenceLimit + 2 * kHeartbeatPeriod;
constexpr std::chrono::milliseconds kEndingDeadline = 4s;
constexpr std::chrono::milliseconds kFinishingDeadline = 10s;
/// Ranks give a checkpoint up after checkpoint.patience_s without a block and say so within this,
/// or within that time again where it is shorter.
constexpr std::chrono::milliseconds kSavingGrace = 60s;
/// Of a line that a rank has for the person who watches.
constexpr std::size_t kMaxNoticeBytes = 1000;

ExitCode CodeOfSignal(int signal) {
  return signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
}

}  // namespace

const std::vector<Supervisor::Transition>& Supervisor::Table() {
  using S = State;
  using E = Event;
  static const std::vector<Transition> table = {
      {S::kLaunching, E::kAllReady, S::kWiring, &Supervisor::SendGo},
      {S::kLaunching, E::kWireupFailed, S::kEnding, &Supervisor::EndForRetry},
      {S::kLaunching, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kLaunching, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kLaunching, E::kTimeout, S::kEnding, &Supervisor::EndForRetry},
      {S::kLaunching, E::kStopAsked, S::kEnding, &Supervisor::EndForStop},

      {S::kWiring, E::kAllWired, S::kTraining, &Supervisor::NoteTraining},
      {S::kWiring, E::kWireupFailed, S::kEnding, &Supervisor::EndForRetry},
      {S::kWiring, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kWiring, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kWiring, E::kTimeout, S::kEnding, &Supervisor::EndForRetry},
      {S::kWiring, E::kStopAsked, S::kEnding, &Supervisor::EndForStop},

      {S::kTraining, E::kSaveAsked, S::kTraining, &Supervisor::SendSave},
      {S::kTraining, E::kStopAsked, S::kSaving, &Supervisor::SendStop},
      {S::kTraining, E::kMoveAsked, S::kSaving, &Supervisor::SendMove},
      {S::kTraining, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kTraining, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kTraining, E::kAllLeft, S::kFinishing, &Supervisor::Nothing},

      {S::kSaving, E::kStopAsked, S::kSaving, &Supervisor::NoteStop},  // on the way to a new plan
      {S::kSaving, E::kStopNow, S::kEnding, &Supervisor::EndUnsaved},
      {S::kSaving, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kSaving, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kSaving, E::kTimeout, S::kEnding, &Supervisor::EndUnsaved},
      {S::kSaving, E::kAllLeft, S::kFinishing, &Supervisor::Nothing},

      {S::kDiagnosing, E::kTimeout, S::kDiagnosing, &Supervisor::ContinueDiagnosis},
      {S::kDiagnosing, E::kAllLeft, S::kFinishing,
       &Supervisor::Nothing},  // the step's end was seen before the farewells
      {S::kDiagnosing, E::kStopNow, S::kEnding, &Supervisor::EndForFailure},

      {S::kFinishing, E::kStepOver, S::kOver, &Supervisor::AfterStep},
      {S::kFinishing, E::kTimeout, S::kEnding, &Supervisor::EndLingering},
      {S::kFinishing, E::kStopNow, S::kEnding, &Supervisor::EndLingering},

      {S::kEnding, E::kStepOver, S::kOver, &Supervisor::AfterEnding},
      {S::kEnding, E::kTimeout, S::kOver, &Supervisor::AfterEnding},
  };
  return table;
}

Supervisor::Supervisor(JobStepSpec spec, JobStepFactory start_step, SupervisorEvents events)
    : spec_(std::move(spec)),
      deadlines_(DeadlinesOf(spec_.launch, spec_.plan->ranks.size())),
      start_step_(std::move(start_step)),
      events_(std::move(events)),
      signals_(io_),
      timer_(io_),
      poll_(io_) {
  for (int signal : RunSignals()) signals_.add(signal);
  WatchSignals();
}

Supervisor::~Supervisor() = default;

RunOutcome Supervisor::Run() {
  StartAttempt();
  PollStep();
  io_.run();
  if (outcome_.moved) HearLastSignals();
  step_.reset();
  control_.reset();
  return outcome_;
}

// The event under way is handled to its end first.
void Supervisor::Move() {
  boost::asio::post(io_, [this] { Handle(Event::kMoveAsked); });
}

void Supervisor::MeasureLayers() {
  if (state_ == State::kTraining) control_->SendAll(ProfileNow{});
}

void Supervisor::Handle(Event event) {
  for (const Transition& row : Table()) {
    if (row.from != state_ || row.event != event) continue;
    Enter(row.to);
    (this->*row.action)();
    return;
  }
}

/// Deadlines that belong to a state as such.
void Supervisor::Enter(State state) {
  if (state == state_) return;
  state_ = state;
  switch (state) {
    case State::kLaunching:
      return ArmTimer(deadlines_.hello);
    case State::kWiring:
      return ArmTimer(deadlines_.Wiring());
    case State::kSaving:
      return AwaitSaving();
    case State::kFinishing:
      return ArmTimer(kFinishingDeadline);
    case State::kEnding:
      return ArmTimer(kEndingDeadline);
    case State::kTraining:
    case State::kDiagnosing:
      break;  // training ends by itself; a diagnosis sets its own times
    case State::kOver:
      break;
  }
  boost::system::error_code ignored;
  timer_.cancel(ignored);
}

void Supervisor::ArmTimer(std::chrono::milliseconds after) {
  timer_.expires_after(after);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Handle(Event::kTimeout);
  });
}

void Supervisor::StartAttempt() {
  ++attempt_;
  const std::size_t size = spec_.plan->ranks.size();
  ranks_.assign(size, RankRecord{});
  for (std::size_t i = 0; i < size; ++i) ranks_[i].host = spec_.plan->ranks[i].device.node;
  metrics_.clear();
  blocks_written_ = 0;
  step_id_.clear();
  signs_ = 0;
  anyone_said_hello_ = false;
  retry_ = false;
  state_ = State::kLaunching;
  ArmTimer(deadlines_.hello);

  const std::string token = NewNonce();
  ControlServer::Events events;
  events.on_hello = [this](const Hello& hello) { OnHello(hello); };
  events.on_message = [this](int rank, const ControlMessage& message) { OnMessage(rank, message); };
  events.on_closed = [this](int rank, const std::string& why) { OnClosed(rank, why); };
  events.on_silent = [this](int rank) { Fault(rank, &RankRecord::order_silent); };
  if (size > kMostRanks)
    return FailRun(
        {fmt::format("{} ranks: at most {} can run together", size, kMostRanks), ExitCode::kUsage});
  auto control = Listen(token, std::move(events));
  if (!control) return FailRun(control.error());
  control_ = std::move(*control);
  JobStepSpec spec = spec_;
  spec.environment["ADAPTIVE_TRAIN_CONTROL"] = control_->Addresses();
  spec.environment["ADAPTIVE_TRAIN_TOKEN"] = token;
  spec.environment["ADAPTIVE_TRAIN_RUN_DIR"] = spec_.run_dir;
  auto step = start_step_(spec);
  if (!step) return FailRun(step.error());
  step_ = std::move(*step);
}

Result<std::unique_ptr<ControlServer>> Supervisor::Listen(const std::string& token,
                                                          ControlServer::Events events) {
  ControlServer::Settings settings;
  settings.ranks = static_cast<int>(ranks_.size());
  settings.token = token;
  settings.deadlines = deadlines_;
  settings.interface = spec_.launch.interface;
  settings.first_rank = spec_.first_rank;
  auto ports = ParsePorts(spec_.launch.ports);
  if (!ports) return tl::unexpected(ports.error());
  settings.ports = *ports;
  return ControlServer::Listen(io_, std::move(settings), std::move(events));
}

/// The launcher itself cannot go on: nothing to diagnose in a rank.
void Supervisor::FailRun(const Error& error) {
  outcome_.code = error.exit_code;
  outcome_.message = error.message;
  Enter(State::kEnding);
  EndRanks("the launcher failed: " + error.message);
}

void Supervisor::PollStep() {
  if (step_) {
    step_->Poll();
    for (const RankEnd& end : step_->TakeEnds()) {
      if (end.rank < 0 || static_cast<std::size_t>(end.rank) >= ranks_.size()) continue;
      Record(end.rank).ended_how = end.how;
      if (!Record(end.rank).goodbye) Fault(end.rank, &RankRecord::order_ended);
    }
    if (step_->Over()) Handle(Event::kStepOver);
  } else if (state_ == State::kEnding) {
    Handle(Event::kStepOver);
  }
  if (state_ == State::kOver) {
    io_.stop();
    return;
  }
  poll_.expires_after(kPollPeriod);
  poll_.async_wait([this](const boost::system::error_code& error) {
    if (!error) PollStep();
  });
}

void Supervisor::WatchSignals() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    OnSignal(signal);
    WatchSignals();
  });
}

/// What came while the last rank went must not be lost between two plans.
void Supervisor::HearLastSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : RunSignals()) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  io_.restart();
  io_.poll();
  AfterStep();
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGUSR1) return Handle(Event::kSaveAsked);
  const bool first = stop_signal_ == 0;
  if (first) stop_signal_ = signal;
  Handle(first ? Event::kStopAsked : Event::kStopNow);
}

// What the ranks say.

void Supervisor::OnHello(const Hello& hello) {
  Record(hello.rank).hello = true;
  if (!hello.host.empty()) Record(hello.rank).host = hello.host;
  if (!hello.step_id.empty()) step_id_ = hello.step_id;
  // Ranks of one step start together: the others have little time left.
  if (std::exchange(anyone_said_hello_, true)) return;
  if (state_ == State::kLaunching) ArmTimer(deadlines_.spread);
}

void Supervisor::OnMessage(int rank, const ControlMessage& message) {
  if (std::holds_alternative<Ready>(message)) {
    Record(rank).ready = true;
    CountAll();
  } else if (std::holds_alternative<Wired>(message)) {
    Record(rank).wired = true;
    CountAll();
  } else if (const auto* resumed = std::get_if<Resumed>(&message)) {
    OnResumed(rank, *resumed);
  } else if (const auto* goodbye = std::get_if<Goodbye>(&message)) {
    Record(rank).goodbye = true;
    Record(rank).step = goodbye->step;
  } else if (const auto* metrics = std::get_if<Metrics>(&message)) {
    OnMetrics(rank, metrics->values);
  } else if (const auto* times = std::get_if<LayerTimes>(&message)) {
    events_.on_layer_times(rank, *times);
  } else if (const auto* saving = std::get_if<Saving>(&message)) {
    OnSaving(rank, *saving);
  } else if (const auto* saved = std::get_if<Saved>(&message)) {
    events_.on_saved(*saved);
  } else if (const auto* notice = std::get_if<Notice>(&message)) {
    events_.on_notice(Printable(notice->text, kMaxNoticeBytes));
  } else if (const auto* decision = std::get_if<Decision>(&message)) {
    if (rank == 0)
      events_.on_decision({decision->step, Printable(decision->text, kMaxNoticeBytes)});
  } else if (const auto* failure = std::get_if<RankFailure>(&message)) {
    Record(rank).report = *failure;
    Record(rank).report->rank = rank;
    const bool wiring = state_ == State::kLaunching || state_ == State::kWiring;
    if (wiring && failure->exit_code == ToInt(RankExit::kWireup)) {
      retry_reason_ = fmt::format("rank {} on {}: {}: {}", rank, Record(rank).host,
                                  failure->operation, failure->cause);
      return Handle(Event::kWireupFailed);
    }
    Fault(rank, &RankRecord::order_reported);
  }
}

/// Rank 0 speaks for all: they have compared what they resumed from before they say so.
void Supervisor::OnResumed(int rank, const Resumed& resumed) {
  Record(rank).step = resumed.step;
  if (rank != 0) return;
  outcome_.last_step = resumed.step;
  auto done = events_.on_resumed(resumed.step);
  if (!done) FailRun(done.error());
}

/// A state that is being written is not given up as long as the file system takes some of it.
void Supervisor::OnSaving(int rank, const Saving& saving) {
  if (rank != 0 || saving.blocks == blocks_written_) return;
  blocks_written_ = saving.blocks;
  if (state_ == State::kSaving) AwaitSaving();
}

void Supervisor::AwaitSaving() {
  const std::chrono::milliseconds patience = spec_.saving_patience;
  ArmTimer(patience + std::min(patience, kSavingGrace));
}

void Supervisor::CountAll() {
  auto all = [this](bool RankRecord::*field) {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [field](const RankRecord& rank) { return rank.*field; });
  };
  if (state_ == State::kLaunching && all(&RankRecord::ready)) return Handle(Event::kAllReady);
  if (state_ == State::kWiring && all(&RankRecord::wired)) return Handle(Event::kAllWired);
}

void Supervisor::OnClosed(int rank, const std::string& why) {
  if (!Record(rank).goodbye) {
    Record(rank).closed_why = why;
    return Fault(rank, &RankRecord::order_closed);
  }
  const bool all_left =
      std::all_of(ranks_.begin(), ranks_.end(), [](const RankRecord& r) { return r.goodbye; });
  if (all_left && !control_->AnyConnected()) Handle(Event::kAllLeft);
}

void Supervisor::Fault(int rank, int RankRecord::*order) {
  if (Record(rank).*order == 0) Record(rank).*order = ++signs_;
  Handle(Event::kTrouble);
}

void Supervisor::OnMetrics(int rank, const RankMetrics& metrics) {
  Record(rank).step = metrics.step;
  auto& of_step = metrics_[metrics.step];
  of_step[rank] = metrics;
  if (of_step.size() != ranks_.size()) return;
  std::vector<RankMetrics> all;
  for (const auto& [r, values] : of_step) all.push_back(values);
  outcome_.last_step = metrics.step;
  metrics_.erase(metrics_.begin(), metrics_.upper_bound(metrics.step));
  if (state_ == State::kSaving) AwaitSaving();  // the step that they were asked in is done
  auto done = events_.on_step(all);
  if (!done && state_ == State::kTraining) {
    // The ranks still hold the state: let them save it before the run ends with this error.
    outcome_.code = done.error().exit_code;
    outcome_.message = done.error().message;
    Handle(Event::kStopAsked);
  }
}

// Actions.

void Supervisor::SendGo() { control_->SendAll(Go{}); }

void Supervisor::NoteTraining() { events_.on_launch(attempt_, "ok", ""); }

void Supervisor::SendStop() {
  NoteStop();
  control_->SendAll(Stop{});
}

void Supervisor::SendMove() {
  moving_ = true;
  control_->SendAll(Stop{});
}

void Supervisor::NoteStop() {
  if (outcome_.code != ExitCode::kDone) return;
  events_.on_notice(
      fmt::format("{}: saving, then stopping (once more: stop now)", ::strsignal(stop_signal_)));
}

void Supervisor::SendSave() {
  events_.on_notice("saving a checkpoint");
  control_->SendAll(CheckpointNow{});
}

void Supervisor::BeginDiagnosis() {
  trouble_since_ = Clock::now();
  ArmTimer(kDiagnosisTime);
}

void Supervisor::ContinueDiagnosis() {
  const auto diagnosis = Diagnose(ranks_);
  // The sign was a rank's end that its farewell has explained since; the others may still be
  // saving.
  if (!diagnosis && step_ && !step_->Over()) {
    return Enter(stop_signal_ == 0 && !moving_ ? State::kTraining : State::kSaving);
  }
  if (diagnosis && diagnosis->hearsay && Clock::now() - trouble_since_ < kHearsayTime)
    return ArmTimer(kDiagnosisTime);
  Enter(State::kEnding);
  EndForFailure();
}

void Supervisor::EndForFailure() {
  auto diagnosis = Diagnose(ranks_);
  if (!diagnosis) {
    // No rank shows anything: the step as a whole did not run.
    diagnosis.emplace();
    diagnosis->kind = "lost";
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
  outcome_.failure = diagnosis;
  if (state_ != State::kEnding) Enter(State::kEnding);
  if (std::none_of(ranks_.begin(), ranks_.end(), [](const RankRecord& r) { return r.wired; })) {
    events_.on_launch(attempt_, "failed", outcome_.message);
  }
  EndRanks(outcome_.message);
}

void Supervisor::EndForRetry() {
  if (retry_reason_.empty()) retry_reason_ = "the ranks were not wired up in time";
  retry_ = attempt_ <= kMaxLaunchRetries;
  events_.on_launch(attempt_, retry_ ? "retried" : "failed", retry_reason_);
  if (!retry_) {
    Diagnosis diagnosis;
    diagnosis.kind = "lost";
    diagnosis.failure.operation = "wire-up";
    diagnosis.failure.cause =
        fmt::format("{} launches failed, the last: {}", attempt_, retry_reason_);
    outcome_.code = ExitCode::kRankFailure;
    outcome_.failure = diagnosis;
    outcome_.message = Describe(diagnosis);
  } else {
    events_.on_notice(
        fmt::format("launch {} failed ({}); launching again", attempt_, retry_reason_));
  }
  EndRanks("the launch is given up");
}

void Supervisor::EndForStop() {
  const Error stopped = StoppedBy(stop_signal_);
  outcome_.code = stopped.exit_code;
  outcome_.message = stopped.message;
  EndRanks(outcome_.message);
}

void Supervisor::EndUnsaved() {
  if (outcome_.code == ExitCode::kDone && stop_signal_ == 0) {
    outcome_.code = ExitCode::kRankFailure;
    outcome_.message =
        "the ranks did not save in time on the way to a new plan; what came after the last "
        "checkpoint is lost";
  } else if (outcome_.code == ExitCode::kDone) {
    outcome_.code = CodeOfSignal(stop_signal_);
    outcome_.message = "stopped at once; what came after the last checkpoint is lost";
  }
  EndRanks("stopped at once");
}

void Supervisor::EndRanks(const std::string& reason) {
  if (control_) control_->SendAll(Abort{reason});
  if (step_) step_->Kill(step_id_);
}

void Supervisor::AfterStep() {
  if (outcome_.code != ExitCode::kDone) return;
  outcome_.moved = moving_ && stop_signal_ == 0;
  if (stop_signal_ == 0) return;
  outcome_.code = CodeOfSignal(stop_signal_);
  outcome_.message = fmt::format("stopped by {} after saving", ::strsignal(stop_signal_));
}

/// The training is done and saved; a process that does not end by itself is ended.
void Supervisor::EndLingering() {
  AfterStep();
  EndRanks("the run is over");
}

void Supervisor::AfterEnding() {
  step_.reset();
  if (retry_ && stop_signal_ == 0) {
    control_.reset();
    retry_reason_.clear();
    StartAttempt();
  } else if (retry_) {
    EndForStop();
  }
}

}  // namespace adaptive_train
