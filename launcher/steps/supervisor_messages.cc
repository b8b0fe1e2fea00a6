// What ranks say while the Supervisor runs them, and what that makes of its state.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/file_io.h"
#include "core/launch_settings.h"
#include "core/rank_exit.h"
#include "launcher/steps/supervisor.h"

namespace adaptive_train {
namespace {

/// Of a line that a rank has for the person who watches.
constexpr std::size_t kMaxNoticeBytes = 1000;

}  // namespace

void Supervisor::OnHello(const Hello& hello) {
  Record(hello.rank).hello = true;
  if (!hello.host.empty()) Record(hello.rank).host = hello.host;
  if (!hello.step_id.empty()) step_id_ = hello.step_id;
  if (!std::exchange(anyone_said_hello_, true)) first_hello_ = RunningClock::now();
  if (state_ == State::kLaunching) AwaitOthers();
}

/// Less where an earlier launch shows how much ranks need. A launch that is tried again has all there
/// is.
HelloTimes Supervisor::HelloDeadlines() const {
  if (attempt_ > 1 || !spec_.usual_hellos) return {deadlines_.hello, deadlines_.spread};
  return HelloDeadlinesAgain(spec_.launch, deadlines_, *spec_.usual_hellos);
}

/// Ranks of one step start together: once one has come the others have little time left. Ranks that
/// have come have all there is: one that stops then is found by its silence.
void Supervisor::AwaitOthers() {
  using std::chrono::milliseconds;
  const auto passed = std::chrono::ceil<milliseconds>(RunningClock::now() - first_hello_);
  milliseconds spread = HelloDeadlines().spread;
  if (std::ranges::all_of(ranks_, &RankRecord::hello)) {
    outcome_.hellos = {std::chrono::ceil<milliseconds>(first_hello_ - launched_), passed};
    spread = deadlines_.spread;
  }
  ArmTimer(std::max(spread - passed, milliseconds{0}));
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
    saved_step_ = saved->step;
    events_.on_saved({saved->step, Printable(saved->path, kMaxNoticeBytes), saved->seconds});
  } else if (const auto* status = std::get_if<RankStatus>(&message)) {
    Record(rank).status = *status;
  } else if (const auto* sum = std::get_if<Sum>(&message)) {
    OnSum(rank, *sum);
  } else if (const auto* notice = std::get_if<Notice>(&message)) {
    events_.on_notice(Printable(notice->text, kMaxNoticeBytes));
  } else if (const auto* decision = std::get_if<Decision>(&message)) {
    events_.on_decision({decision->step, Printable(decision->text, kMaxNoticeBytes)});
  } else if (const auto* signalled = std::get_if<Signalled>(&message)) {
    OnPassedSignal(signalled->number);
  } else if (const auto* injected = std::get_if<Injected>(&message)) {
    if (events_.on_injected) events_.on_injected(rank, injected->fault);
  } else if (const auto* failure = std::get_if<RankFailure>(&message)) {
    OnFailure(rank, *failure);
  }
}

void Supervisor::OnFailure(int rank, const RankFailure& failure) {
  RankFailure& report = Record(rank).report.emplace(failure);
  report.rank = rank;
  report.operation = Printable(failure.operation, kMaxNoticeBytes);
  report.cause = Printable(failure.cause, kMaxNoticeBytes);
  const bool wiring = state_ == State::kLaunching || state_ == State::kWiring;
  if (wiring && failure.exit_code == ToInt(RankExit::kWireup)) return Handle(Event::kWireupFailed);
  Fault(rank, &RankRecord::order_reported);
}

/// Rank 0 speaks for all: they have compared what they resumed from before they say so.
void Supervisor::OnResumed(int rank, const Resumed& resumed) {
  Record(rank).step = resumed.step;
  if (rank != 0) return;
  outcome_.last_step = resumed.step;
  stall_.Resumed(resumed.step, RunningClock::now());
  auto done = events_.on_resumed(resumed);
  if (!done) FailRun(done.error());
}

/// A state that is being written is not given up as long as the file system takes some of it.
void Supervisor::OnSaving(int rank, const Saving& saving) {
  if (rank == 0 && state_ == State::kSaving) last_save_ = true;
  if (rank != 0 || saving.blocks == blocks_written_) return;
  blocks_written_ = saving.blocks;
  if (state_ == State::kSaving) AwaitSaving();
}

/// Ranks that have given up their exchange save by these sums; from the first on they have come to
/// it.
void Supervisor::OnSum(int rank, const Sum& sum) {
  if (!gave_up_) return;
  const auto sums = sums_.Add(rank, sum.numbers);
  if (!sums) return;
  if (!std::exchange(last_save_, true)) AwaitSaving();
  control_->SendAll(Sum{*sums});
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
  Record(rank).peak_bytes = metrics.peak_memory_bytes;
  auto& of_step = metrics_[metrics.step];
  of_step[rank] = metrics;
  if (of_step.size() != ranks_.size()) return;
  std::vector<RankMetrics> all;
  for (const auto& [r, values] : of_step) all.push_back(values);
  outcome_.last_step = metrics.step;
  metrics_.erase(metrics_.begin(), metrics_.upper_bound(metrics.step));
  if (state_ == State::kSaving) AwaitSaving();  // the step that they were asked in is done
  const auto goes_on = stall_.Step(metrics.step, metrics.step_s, RunningClock::now());
  if (goes_on) events_.on_notice(*goes_on);
  auto done = events_.on_step(all);
  if (!done && state_ == State::kTraining) {
    // The ranks still hold the state: let them save it before the run ends with this error.
    outcome_.code = done.error().exit_code;
    outcome_.message = done.error().message;
    Handle(Event::kStopAsked);
  }
}

}  // namespace adaptive_train
