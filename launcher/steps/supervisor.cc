#include "launcher/steps/supervisor.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>

#include "core/token_proof.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::milliseconds kPollPeriod{50};
constexpr std::chrono::milliseconds kEndingDeadline = 4s;
constexpr std::chrono::milliseconds kFinishingDeadline = 10s;
/// A stop waits at least so long for the step under way, however long that has been.
constexpr std::chrono::milliseconds kLeastStopPatience = 3s;
/// From the first rank that could not be wired up to what the others say about it.
constexpr std::chrono::milliseconds kOthersTime = 1s;
/// A rank that has missed so many heartbeats is likely lost.
constexpr std::chrono::milliseconds kQuiet = 2 * kHeartbeatPeriod;
/// Ranks give a checkpoint up after checkpoint.patience_s without a block and say so within this,
/// or within that time again where it is shorter.
constexpr std::chrono::milliseconds kSavingGrace = 60s;
/// One signal to many processes is told by all of them within this.
constexpr std::chrono::milliseconds kSameSignal = 3s;

}  // namespace

const std::vector<Supervisor::Transition>& Supervisor::Table() {
  using S = State;
  using E = Event;
  static const std::vector<Transition> table = {
      {S::kLaunching, E::kAllReady, S::kWiring, &Supervisor::SendGo},
      {S::kLaunching, E::kWireupFailed, S::kUnwired, &Supervisor::HearOthers},
      {S::kLaunching, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kLaunching, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kLaunching, E::kTimeout, S::kEnding, &Supervisor::EndForRetry},
      {S::kLaunching, E::kStopAsked, S::kEnding, &Supervisor::EndForStop},

      {S::kWiring, E::kAllWired, S::kTraining, &Supervisor::NoteTraining},
      {S::kWiring, E::kWireupFailed, S::kUnwired, &Supervisor::HearOthers},
      {S::kWiring, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kWiring, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kWiring, E::kTimeout, S::kEnding, &Supervisor::EndForRetry},
      {S::kWiring, E::kStopAsked, S::kEnding, &Supervisor::EndForStop},

      {S::kUnwired, E::kTrouble, S::kUnwired, &Supervisor::HearCause},
      {S::kUnwired, E::kStepOver, S::kEnding, &Supervisor::EndForRetry},
      {S::kUnwired, E::kTimeout, S::kEnding, &Supervisor::EndForRetry},
      {S::kUnwired, E::kStopAsked, S::kEnding, &Supervisor::EndForStop},

      {S::kTraining, E::kSaveAsked, S::kTraining, &Supervisor::SendSave},
      {S::kTraining, E::kStopAsked, S::kSaving, &Supervisor::BeginStopping},
      {S::kTraining, E::kMoveAsked, S::kSaving, &Supervisor::SendMove},
      {S::kTraining, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kTraining, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kTraining, E::kAllLeft, S::kFinishing, &Supervisor::Nothing},

      {S::kSaving, E::kStopAsked, S::kSaving, &Supervisor::NoteStop},  // on the way to a new plan
      {S::kSaving, E::kStalled, S::kSaving, &Supervisor::SendGiveUp},
      {S::kSaving, E::kStopNow, S::kEnding, &Supervisor::EndAtOnce},
      {S::kSaving, E::kTimeUp, S::kEnding, &Supervisor::EndUnsaved},
      {S::kSaving, E::kTrouble, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kSaving, E::kStepOver, S::kDiagnosing, &Supervisor::BeginDiagnosis},
      {S::kSaving, E::kTimeout, S::kSaving, &Supervisor::GiveUpOrEnd},
      {S::kSaving, E::kAllLeft, S::kFinishing, &Supervisor::Nothing},

      {S::kDiagnosing, E::kTrouble, S::kDiagnosing, &Supervisor::Reconsider},
      {S::kDiagnosing, E::kTimeout, S::kDiagnosing, &Supervisor::ContinueDiagnosis},
      {S::kDiagnosing, E::kAllLeft, S::kFinishing,
       &Supervisor::Nothing},  // the step's end was seen before the farewells
      {S::kDiagnosing, E::kStopNow, S::kEnding, &Supervisor::EndForFailure},

      {S::kFinishing, E::kStepOver, S::kOver, &Supervisor::AfterStep},
      {S::kFinishing, E::kTimeout, S::kEnding, &Supervisor::EndLingering},
      {S::kFinishing, E::kStopNow, S::kEnding, &Supervisor::EndLingering},
      {S::kFinishing, E::kTimeUp, S::kEnding, &Supervisor::EndLingering},

      {S::kEnding, E::kStepOver, S::kOver, &Supervisor::AfterEnding},
      {S::kEnding, E::kTimeout, S::kOver, &Supervisor::AfterEnding},
  };
  return table;
}

Supervisor::Supervisor(JobStepSpec spec, JobStepFactory start_step, SupervisorEvents events,
                       EndingSteps& ending)
    : spec_(std::move(spec)),
      deadlines_(DeadlinesOf(spec_.launch, spec_.plan->ranks.size())),
      start_step_(std::move(start_step)),
      events_(std::move(events)),
      ending_(ending),
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
  if (outcome_.moved || outcome_.failure) HearLastSignals();
  outcome_.stop_asked = stop_signal_ != 0;
  if (requeue_ && outcome_.failure) outcome_.code = ExitCode::kRequeue;
  if (outcome_.failure) {
    outcome_.silent_nodes = SilentNodes();  // also those found while it ended
    BlameSilentRank();
  }
  ending_.Take(std::move(step_));
  control_.reset();
  return outcome_;
}

// The event under way is handled to its end first.
void Supervisor::Move() {
  boost::asio::post(io_, [this] { Handle(Event::kMoveAsked); });
}

void Supervisor::Save() {
  boost::asio::post(io_, [this] { Handle(Event::kSaveAsked); });
}

void Supervisor::StopForLater(std::string why) {
  boost::asio::post(io_, [this, why = std::move(why)] {
    if (!BeginStop(SIGTERM)) return;
    stop_words_ = why;
    requeue_ = true;
    Handle(Event::kStopAsked);
  });
}

void Supervisor::MeasureLayers() {
  if (state_ == State::kTraining) control_->SendAll(ProfileNow{});
}

void Supervisor::ChangeShares(std::vector<std::int64_t> samples) {
  if (state_ == State::kTraining) control_->SendAll(NewShares{std::move(samples)});
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
      return ArmTimer(HelloDeadlines().first);
    case State::kWiring:
      return ArmTimer(deadlines_.Wiring());
    case State::kUnwired:
      return ArmTimer(kOthersTime);
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
    // A wait that was over before the timer was set anew is still told.
    const bool set_anew = timer_.expiry() > RunningClock::now();
    if (!error && !set_anew) Handle(Event::kTimeout);
  });
}

void Supervisor::StartAttempt() {
  ++attempt_;
  const std::size_t size = spec_.plan->ranks.size();
  ranks_.assign(size, RankRecord{});
  for (std::size_t i = 0; i < size; ++i) {
    ranks_[i].host = spec_.plan->ranks[i].device.node;
    ranks_[i].planned_bytes = spec_.plan->ranks[i].memory_bytes;
  }
  metrics_.clear();
  blocks_written_ = 0;
  last_save_ = gave_up_ = stop_waits_ = false;
  sums_ = SumRound(size);
  step_id_.clear();
  signs_ = 0;
  anyone_said_hello_ = false;
  retry_ = false;
  launched_ = RunningClock::now();
  state_ = State::kLaunching;
  ArmTimer(HelloDeadlines().first);

  const std::string token = NewNonce();
  ControlServer::Events events;
  events.on_hello = [this](const Hello& hello) { OnHello(hello); };
  events.on_message = [this](int rank, const ControlMessage& message) { OnMessage(rank, message); };
  events.on_closed = [this](int rank, const std::string& why) { OnClosed(rank, why); };
  events.on_silent = [this](int rank) {
    Record(rank).silence = deadlines_.rank_silence;
    Fault(rank, &RankRecord::order_silent);
  };
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

/// No rank is left but those that are silent. A connection closes when its process has given its
/// memory back.
bool Supervisor::RanksLeft() const {
  for (std::size_t i = 0; control_ && i < ranks_.size(); ++i)
    if (ranks_[i].order_silent == 0 && control_->Connected(static_cast<int>(i))) return false;
  return true;
}

bool Supervisor::IsStepOver() const {
  if (state_ != State::kEnding) return step_->Over();
  return RanksLeft() && (step_->Over() || step_->MayEndBeside());
}

void Supervisor::PollStep() {
  RunningClock::now();  // it is watched
  HearHeldSignal();
  ending_.Poll();
  events_.on_poll();
  if (step_) {
    step_->Poll();
    for (const RankEnd& end : step_->TakeEnds()) {
      if (end.rank < 0 || static_cast<std::size_t>(end.rank) >= ranks_.size()) continue;
      Record(end.rank).ended_how = end.how;
      Record(end.rank).ended_by_signal = end.by_signal;
      Record(end.rank).ended_kind = end.kind;
      if (!Record(end.rank).goodbye) Fault(end.rank, &RankRecord::order_ended);
    }
    if (IsStepOver()) Handle(Event::kStepOver);
    if (stop_waits_ && state_ == State::kSaving) SendStop();
    WatchSteps();
    WatchLimits();
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

/// Asks ranks why no step ends, and tells it; gives the step up where a stop waits for it.
void Supervisor::WatchSteps() {
  const bool trains = state_ == State::kTraining || (state_ == State::kSaving && !last_save_);
  // Ranks that measure make no steps.
  if (!trains || !spec_.mode.empty()) return;
  const auto now = RunningClock::now();
  if (stall_.Asks(now)) {
    for (RankRecord& rank : ranks_) rank.status.reset();
    control_->SendAll(StatusNow{});
  }
  if (const auto line = stall_.Line(ranks_, now)) events_.on_notice(*line);
  if (stop_signal_ != 0 && !gave_up_ && stall_.Stalled(now) &&
      now - stop_asked_ >= kLeastStopPatience)
    Handle(Event::kStalled);
}

/// What Slurm leaves of a stop's time goes to the last save, and then to the launcher's own end.
void Supervisor::WatchLimits() {
  const auto now = RunningClock::now();
  if (end_round_at_ && now >= *end_round_at_ && state_ == State::kSaving && !last_save_)
    EndRoundNow();
  if (give_up_at_ && now >= *give_up_at_ && !gave_up_ && !last_save_) Handle(Event::kStalled);
  if (end_at_ && now >= *end_at_) Handle(Event::kTimeUp);
}

/// Replicas can be averaged after any step, so that none is lost.
void Supervisor::EndRoundNow() {
  end_round_at_.reset();
  events_.on_notice("the round of local steps ends early, as there is no time for all of it");
  control_->SendAll(EndRound{});
}

void Supervisor::WatchSignals() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    OnSignal(signal);
    WatchSignals();
  });
}

/// Callers with nothing to save may hold signals back, as while nodes are measured.
void Supervisor::HearHeldSignal() {
  const auto signal = PendingStopSignal();
  if (signal && BeginStop(*signal)) Handle(Event::kStopAsked);
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

bool Supervisor::BeginStop(int signal) {
  if (stop_signal_ != 0) return false;
  stop_signal_ = signal;
  stop_asked_ = RunningClock::now();
  return true;
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGUSR1) return Handle(Event::kSaveAsked);
  // What Slurm sends a whole job reaches ranks and launcher.
  const bool told = stop_passed_ && RunningClock::now() - stop_asked_ < kSameSignal;
  if (!std::exchange(own_stop_, true) && told) {
    requeue_ = false;
    return;
  }
  Handle(BeginStop(signal) ? Event::kStopAsked : Event::kStopNow);
}

/// Slurm sends preemption's SIGTERM, the signal of --signal without B:, and those of scancel -s to
/// ranks alone. Each of them passes it on: it counts once, and never means to stop at once.
void Supervisor::OnPassedSignal(int signal) {
  const std::vector<int> known = RunSignals();
  if (std::ranges::find(known, signal) == known.end()) return;
  const auto now = RunningClock::now();
  const auto [told, first] = passed_.try_emplace(signal, now);
  if (!first && now - std::exchange(told->second, now) < kSameSignal) return;
  if (signal == SIGUSR1) return Handle(Event::kSaveAsked);
  if (!BeginStop(signal)) return;
  stop_passed_ = true;
  requeue_ = !step_id_.empty() && signal != SIGINT;
  Handle(Event::kStopAsked);
}

void Supervisor::AwaitSaving() {
  const std::chrono::milliseconds patience = spec_.saving_patience;
  ArmTimer(patience + std::min(patience, kSavingGrace));
}

// Actions.

void Supervisor::SendGo() { control_->SendAll(Go{}); }

/// Whoever still waits says for whom.
void Supervisor::HearOthers() { control_->SendAll(StatusNow{}); }

/// The others could not be wired up as a rank was killed or has failed in something else: no launch
/// failed then, whichever of the two was heard first. A rank that has gone quiet is what the others
/// could not reach: a kill that is heard after that may be Slurm's, as a rank ended unwired.
void Supervisor::HearCause() {
  const auto diagnosis = Diagnose(ranks_);
  if (!diagnosis || !(diagnosis->final || diagnosis->reported)) return;
  if (diagnosis->final && FailedAfterAnUnwiredEnd(ranks_, diagnosis->failure.rank)) return;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (control_->Quiet(static_cast<int>(i), kQuiet)) return;
  Enter(State::kDiagnosing);
  BeginDiagnosis();
}

void Supervisor::NoteTraining() {
  stall_.Begin(RunningClock::now(), RoundOf(*spec_.plan));
  outcome_.trained = true;
  events_.on_launch(attempt_, "ok", "");
}

/// Ranks that measure have nothing to save.
void Supervisor::BeginStopping() {
  if (!spec_.mode.empty()) {
    Enter(State::kEnding);
    return EndForStop();
  }
  stop_waits_ = true;
  SendStop();
}

/// As soon as is known what the stop may take: one that comes from outside may be followed by Slurm's
/// kill.
void Supervisor::SendStop() {
  const auto limits = stop_signal_ == 0 ? StopLimits{} : events_.on_stop();
  if (!limits) return;
  stop_waits_ = false;
  Take(*limits);
  NoteStop();
  if (too_long_.empty())
    control_->SendAll(Stop{});
  else
    control_->SendAll(StopUnsaved{});
}

void Supervisor::Take(const StopLimits& limits) {
  const auto after = [now = RunningClock::now()](double seconds) {
    return now + std::chrono::duration_cast<RunningClock::duration>(
                     std::chrono::duration<double>(seconds));
  };
  if (limits.give_up_s) give_up_at_ = after(*limits.give_up_s);
  if (limits.end_round_s) end_round_at_ = after(*limits.end_round_s);
  if (limits.end_s) end_at_ = after(*limits.end_s);
  too_long_ = limits.too_long;
}

void Supervisor::SendMove() {
  moving_ = true;
  control_->SendAll(Stop{});
}

void Supervisor::NoteStop() {
  if (outcome_.code != ExitCode::kDone) return;
  const std::string what = too_long_.empty() ? "saving, then stopping"
                                             : "stopping without another save, as " + too_long_;
  events_.on_notice(
      fmt::format("{}: {}{}", StopWords(), what, requeue_ ? "" : " (once more: stop now)"));
}

void Supervisor::SendGiveUp() {
  gave_up_ = true;
  events_.on_notice(
      fmt::format("no step for {:.0f} s: giving up the one under way, to {}",
                  stall_.Without(RunningClock::now()).count(),
                  too_long_.empty() ? "save the last" : "complete the save under way"));
  control_->SendAll(GiveUp{});
  AwaitSaving();  // a rank that works, and waits for nobody, comes to it when it is done
}

/// Nothing was saved, and nothing shows that it will be.
void Supervisor::GiveUpOrEnd() {
  if (stop_signal_ != 0 && !gave_up_ && !last_save_) return SendGiveUp();
  Enter(State::kEnding);
  EndUnsaved();
}

void Supervisor::SendSave() {
  events_.on_notice("saving a checkpoint");
  control_->SendAll(CheckpointNow{});
}

}  // namespace adaptive_train
