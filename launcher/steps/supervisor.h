// The life of a job's ranks as a transition table: launch, wire up, train, save, diagnose, end.
// supervisor.cc is that life, supervisor_messages.cc what ranks say, supervisor_endings.cc how it
// ends.
#pragma once

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/exit_code.h"
#include "core/plan.h"
#include "core/running_clock.h"
#include "core/step_metrics.h"
#include "launcher/steps/control_server.h"
#include "launcher/steps/diagnosis.h"
#include "launcher/steps/ending_steps.h"
#include "launcher/steps/job_step.h"
#include "launcher/steps/stall_watch.h"
#include "launcher/steps/stop_limits.h"
#include "launcher/steps/sum_round.h"

namespace adaptive_train {

/// How the ranks' run ended.
struct RunOutcome {
  ExitCode code = ExitCode::kDone;
  std::string message;  // one line for a person; empty when done
  std::optional<Diagnosis> failure;
  std::int64_t last_step = 0;  // completed by all ranks
  bool trained = false;        // the ranks were wired up
  bool stop_asked = false;     // by a signal, or for the job's end
  bool unsaved = false;  // steps after the newest checkpoint are lost, and the message says why
  bool at_once = false;  // a person has asked for that
  /// After a failure: nodes from which nothing more was heard, as the plan names them.
  std::vector<std::string> silent_nodes = {};
  RunningClock::time_point failed_at = {};  // its first sign
  /// Of the last launch in which all ranks came.
  std::optional<HelloTimes> hellos = {};
  /// Move was asked for and nothing else happened: the state is saved, the ranks are gone, another
  /// plan may go on from there. They may have been done just then: compare last_step.
  bool moved = false;
};

/// What the rest of the launcher wants to know while the ranks run. Called on the supervisor's
/// thread; an error from on_step ends the run, saving first; one from on_resumed ends it at once.
struct SupervisorEvents {
  std::function<void(int attempt, const std::string& outcome, const std::string& reason)> on_launch;
  std::function<Result<void>(const Resumed&)> on_resumed;
  std::function<Result<void>(std::span<const RankMetrics>)> on_step;
  std::function<void(int rank, const LayerTimes&)> on_layer_times;
  std::function<void(const Saved&)> on_saved;
  std::function<void(const std::string&)> on_notice;
  std::function<void(const Decision&)> on_decision;
  /// A stop was asked for: what it may take. None: that is not known yet. The ranks train on, and
  /// this is called again some times a second.
  std::function<std::optional<StopLimits>()> on_stop = [] { return StopLimits{}; };
  std::function<void()> on_poll = [] {};                                // some times a second
  std::function<void(int rank, const std::string& fault)> on_injected;  // untrusted text
};

/// Runs all ranks of a plan to the end. One object a plan; Run blocks; signals (SIGINT, SIGTERM,
/// SIGHUP, SIGUSR1) are handled from construction to destruction, so that one that comes early is
/// not lost; when Run gives `moved` they are held back, so that the next object hears what comes in
/// between. A step that was killed and is not over when Run ends goes to `ending`, which outlives
/// the object.
class Supervisor {
 public:
  Supervisor(JobStepSpec spec, JobStepFactory start_step, SupervisorEvents events,
             EndingSteps& ending);
  ~Supervisor();

  RunOutcome Run();

  // From events only, while the ranks train; otherwise they do nothing.

  /// Lets the ranks save and stop, so that another plan can go on; Run then gives `moved`. A signal
  /// or a failure on the way comes first.
  void Move();
  /// Lets the ranks measure their layers once more.
  void MeasureLayers();
  /// Lets the ranks save and go on.
  void Save();
  /// Lets the ranks save and stop, for a run that goes on in a later job; `why` is what comes.
  void StopForLater(std::string why);
  /// Lets the ranks take these shares (NewShares) from a step on that they agree on. Metrics show
  /// which one it was.
  void ChangeShares(std::vector<std::int64_t> samples);

 private:
  enum class State {
    kLaunching,
    kWiring,
    kUnwired,
    kTraining,
    kSaving,
    kFinishing,
    kDiagnosing,
    kEnding,
    kOver
  };
  enum class Event {
    kAllReady,
    kAllWired,
    kWireupFailed,
    kTrouble,
    kStopAsked,
    kStopNow,
    kSaveAsked,
    kMoveAsked,
    kStalled,
    kTimeUp,
    kAllLeft,
    kStepOver,
    kTimeout
  };
  struct Transition {
    State from;
    Event event;
    State to;
    void (Supervisor::*action)();
  };
  static const std::vector<Transition>& Table();

  void Handle(Event event);
  void Enter(State state);
  void ArmTimer(std::chrono::milliseconds after);

  // Actions of the table.
  void Nothing() {}
  void SendGo();
  void HearOthers();
  void HearCause();
  void NoteTraining();
  void BeginStopping();
  void SendStop();
  void SendMove();
  void NoteStop();
  void Take(const StopLimits& limits);
  void WatchLimits();
  void EndRoundNow();
  void SendGiveUp();
  void GiveUpOrEnd();
  void SendSave();
  void BeginDiagnosis();
  void Reconsider();
  void ContinueDiagnosis();
  void EndForRetry();
  bool IsLaunchTrouble() const;
  std::string NodeOfFailedLaunch() const;
  std::vector<std::string> NodesWithoutAnswer() const;
  void EndForFailure();
  void EndForStop();
  void EndAtOnce();
  void EndUnsaved();
  void NoteUnsaved();
  std::string WhyUnsaved() const;
  void AfterStep();
  void EndLingering();
  void AfterEnding();

  void StartAttempt();
  Result<std::unique_ptr<ControlServer>> Listen(const std::string& token,
                                                ControlServer::Events events);
  void EndRanks(const std::string& reason);
  std::vector<std::string> SilentNodes() const;
  void BlameSilentRank();
  bool RanksLeft() const;
  bool IsStepOver() const;
  void PollStep();
  void WatchSteps();
  void WatchSignals();
  void HearHeldSignal();
  void HearLastSignals();
  void OnSignal(int signal);
  void OnPassedSignal(int signal);
  bool BeginStop(int signal);
  std::string StopWords() const;
  ExitCode StopCode() const;
  void OnHello(const Hello& hello);
  HelloTimes HelloDeadlines() const;
  void AwaitOthers();
  void OnMessage(int rank, const ControlMessage& message);
  void OnClosed(int rank, const std::string& why);
  void OnResumed(int rank, const Resumed& resumed);
  void OnFailure(int rank, const RankFailure& failure);
  void OnSaving(int rank, const Saving& saving);
  void OnSum(int rank, const Sum& sum);
  void AwaitSaving();
  void OnMetrics(int rank, const RankMetrics& metrics);
  void Fault(int rank, int RankRecord::*order);
  void CountAll();
  void FailRun(const Error& error);
  RankRecord& Record(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  JobStepSpec spec_;
  const LaunchDeadlines deadlines_;
  JobStepFactory start_step_;
  SupervisorEvents events_;
  EndingSteps& ending_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  RunningClock::Watched clock_;  // by each poll
  boost::asio::basic_waitable_timer<RunningClock>
      timer_;  // time in which nothing runs is no deadline's
  boost::asio::steady_timer poll_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<JobStep> step_;
  std::vector<RankRecord> ranks_;
  std::map<std::int64_t, std::map<int, RankMetrics>>
      metrics_;  // steps that not all ranks have reported
  StallWatch stall_;
  SumRound sums_{0};  // of ranks that have given up their exchange
  State state_ = State::kLaunching;
  RunOutcome outcome_;
  std::string step_id_;
  int attempt_ = 0;
  std::int64_t blocks_written_ = 0;         // of checkpoints, as rank 0 has said last
  std::optional<std::int64_t> saved_step_;  // of the newest save of these ranks
  bool last_save_ = false;                  // all ranks have come to it
  bool gave_up_ = false;                    // the exchange under way, so that ranks save
  int signs_ = 0;                           // failure signs so far, to order them
  int stop_signal_ = 0;
  std::string stop_words_;    // what stops the run, where that is no signal
  bool requeue_ = false;      // the stop is Slurm's: the job may go on later
  bool stop_passed_ = false;  // by ranks
  bool stop_waits_ = false;   // for its limits: the ranks do not know of it yet
  bool own_stop_ = false;     // a signal to stop has reached this process itself
  std::map<int, RunningClock::time_point> passed_;  // when ranks told of a signal
  bool moving_ = false;
  bool anyone_said_hello_ = false;
  bool retry_ = false;
  std::string retry_reason_;
  std::string failed_launch_on_;             // the node on which the last launch failed
  std::vector<std::string> lost_at_launch_;  // nodes that it has lost
  bool asked_at_launch_ = false;             // whether others were asked, and are not lost
  RunningClock::time_point launched_, first_hello_, trouble_since_, diagnosed_at_, stop_asked_;
  std::string too_long_;  // why no other save is begun
  std::optional<RunningClock::time_point> give_up_at_, end_round_at_, end_at_;  // of a stop
};

}  // namespace adaptive_train
