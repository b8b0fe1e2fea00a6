#include "runtime/control/control_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>  // Boost 1.74 uses std::exchange without it

#include <algorithm>
#include <boost/asio.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/limits.h"
#include "core/rank_exit.h"
#include "core/running_clock.h"
#include "runtime/control/find_launcher.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFarewellDeadline{5};
/// For a program to start from a file system that may hang; the program ends this alarm.
constexpr unsigned kBecomeSeconds = 5;

/// Ends the process from any thread. If its log is on a file system that hangs, SIGALRM ends it.
[[noreturn]] void EndProcess(RankExit code, const std::string& why) {
  ::alarm(2);
  std::fprintf(stderr, "adaptive-train-worker: %s; the rank ends\n", why.c_str());
  std::fflush(stderr);
  std::_Exit(ToInt(code));
}

/// The program takes this process over, with its open files: a PMIx server that loses the connection
/// of a rank has Slurm kill the step. Returns where it cannot.
void Become(const std::vector<std::string>& program) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error))
    ::fcntl(std::atoi(entry.path().filename().c_str()), F_SETFD, 0);
  std::vector<char*> arguments;
  for (const std::string& word : program) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::execv(arguments[0], arguments.data());
}

}  // namespace

struct ControlChannel::State {
  asio::io_context io;
  tcp::socket socket{io};
  asio::steady_timer tick{io};
  asio::posix::stream_descriptor signals{io};  // a signalfd
  signalfd_siginfo signal{};
  std::thread thread;
  FrameReader reader;
  char block[8192];
  std::deque<std::string> outgoing;                          // the first is being written
  std::atomic<std::size_t> unsent{0};                        // messages that have not left yet
  std::vector<std::shared_ptr<std::promise<void>>> flushes;  // who waits until it is empty
  Clock::time_point heard = Clock::now(), ticked = heard;
  RunningClock::Watched clock;  // by each tick
  bool closing = false;
  std::vector<std::string> when_lost;
  LaunchDeadlines deadlines;

  std::atomic<bool> stop_asked{false}, stop_unsaved_asked{false}, end_round_asked{false};
  std::atomic<bool> checkpoint_asked{false};
  std::atomic<bool> profile_asked{false};
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false, give_up = false;        // guarded by mutex, as all below
  std::optional<std::vector<double>> sum;  // the launcher's answer
  std::deque<Shares> new_shares;           // not taken yet, in the launcher's order
  ControlChannel::Orders orders;

  void Read();
  bool ObeyAll();
  void Write();
  void Enqueue(const ControlMessage& message);
  void Push(const ControlMessage& message);
  void EndFlushes();
  void EndSending();
  void Close();
  void Tick();
  void HearSignals();
  void Obey(const ControlMessage& message);
  void Note(const ControlMessage& message);
  void LoseLauncher(const std::string& why) {
    if (closing) return;
    const std::string lost = "lost the launcher (" + why + ")";
    if (when_lost.empty()) EndProcess(RankExit::kLauncherLost, lost);
    ::alarm(kBecomeSeconds);
    std::fprintf(stderr, "adaptive-train-worker: %s\n", lost.c_str());
    std::fflush(stderr);
    boost::system::error_code ignored;
    socket.close(ignored);  // a launcher that was only held up is to see that the rank has left
    Become(when_lost);
    EndProcess(RankExit::kLauncherLost, fmt::format("{}: {}", when_lost[0], std::strerror(errno)));
  }
};

void ControlChannel::State::Read() {
  socket.async_read_some(
      asio::buffer(block), [this](const boost::system::error_code& error, std::size_t n) {
        if (closing) return error ? Close() : Read();
        if (error)
          return LoseLauncher(error == asio::error::eof ? "it closed the control channel"
                                                        : error.message());
        heard = Clock::now();
        reader.Feed(std::string_view(block, n));
        if (ObeyAll()) Read();
      });
}

/// Handles all received messages; false: the stream is not our protocol.
bool ControlChannel::State::ObeyAll() {
  for (;;) {
    auto message = reader.Next();
    if (!message) {
      LoseLauncher(message.error().message);
      return false;
    }
    if (!*message) return true;
    Obey(**message);
  }
}

void ControlChannel::State::Obey(const ControlMessage& message) {
  if (const auto* abort = std::get_if<Abort>(&message))
    EndProcess(RankExit::kAborted, "the launcher says: " + abort->reason);
  if (std::holds_alternative<Stop>(message)) stop_asked = true;
  // Who sees the one sees the other.
  if (std::holds_alternative<StopUnsaved>(message)) stop_unsaved_asked = true, stop_asked = true;
  if (std::holds_alternative<EndRound>(message)) end_round_asked = true;
  if (std::holds_alternative<CheckpointNow>(message)) checkpoint_asked = true;
  if (std::holds_alternative<ProfileNow>(message)) profile_asked = true;
  Note(message);
}

/// What other threads wait for or obey.
void ControlChannel::State::Note(const ControlMessage& message) {
  const std::lock_guard lock(mutex);
  if (std::holds_alternative<StatusNow>(message) && orders.say_status) orders.say_status();
  if (std::holds_alternative<GiveUp>(message)) {
    give_up = true;
    if (orders.give_up) orders.give_up();
  }
  if (std::holds_alternative<Go>(message)) go = true;
  if (const auto* answer = std::get_if<Sum>(&message)) sum = answer->numbers;
  if (const auto* shares = std::get_if<NewShares>(&message)) new_shares.push_back(shares->samples);
  changed.notify_all();
}

void ControlChannel::State::Enqueue(const ControlMessage& message) {
  ++unsent;
  Push(message);
}

/// Of what is counted already.
void ControlChannel::State::Push(const ControlMessage& message) {
  outgoing.push_back(EncodeFrame(message));
  if (outgoing.size() == 1) Write();
}

void ControlChannel::State::Write() {
  asio::async_write(socket, asio::buffer(outgoing.front()),
                    [this](const boost::system::error_code& error, std::size_t) {
                      if (error) return closing ? Close() : LoseLauncher(error.message());
                      outgoing.pop_front();
                      --unsent;
                      if (!outgoing.empty()) return Write();
                      EndFlushes();
                      if (closing) EndSending();
                    });
}

void ControlChannel::State::EndFlushes() {
  for (const auto& flush : std::exchange(flushes, {})) flush->set_value();
}

/// The launcher closes when it has read everything. Were this side the first, with something of the
/// launcher's unread or on its way, the reset would take back what the launcher has not read yet.
void ControlChannel::State::EndSending() {
  boost::system::error_code ignored;
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void ControlChannel::State::Close() {
  boost::system::error_code ignored;
  tick.cancel(ignored);
  signals.close(ignored);
  socket.shutdown(tcp::socket::shutdown_both, ignored);
  socket.close(ignored);
}

void ControlChannel::State::Tick() {
  tick.expires_after(kHeartbeatPeriod);
  tick.async_wait([this](const boost::system::error_code& error) {
    if (error || closing) return;
    // While this side is held up (a suspended machine, a stopped process), the launcher may be too,
    // and its messages may be unread: that time is not the launcher's silence.
    RunningClock::now();
    const auto now = Clock::now();
    heard = std::min(now, heard + (now - ticked - kHeartbeatPeriod));
    ticked = now;
    if (now - heard > deadlines.launcher_silence) {
      LoseLauncher(fmt::format("nothing heard for {} s",
                               static_cast<double>(deadlines.launcher_silence.count()) / 1000));
    }
    Enqueue(Heartbeat{});
    Tick();
  });
}

/// Slurm sends some signals to ranks alone; the launcher decides what they mean.
void ControlChannel::State::HearSignals() {
  asio::async_read(signals, asio::buffer(&signal, sizeof signal),
                   [this](const boost::system::error_code& error, std::size_t) {
                     if (error || closing) return;
                     Enqueue(Signalled{static_cast<int>(signal.ssi_signo)});
                     HearSignals();
                   });
}

ControlChannel::ControlChannel(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<ControlChannel>> ControlChannel::Connect(Settings settings) {
  auto state = std::make_unique<State>();
  auto launcher =
      FindLauncher(state->io, settings.addresses, settings.token, std::move(settings.hello));
  if (!launcher) return tl::unexpected(launcher.error());
  state->socket = std::move(launcher->socket);
  state->reader = std::move(launcher->reader);
  state->deadlines = launcher->deadlines;
  state->heard = state->ticked = Clock::now();
  if (!state->ObeyAll())
    return Fail("the launcher ended its greeting with garbage", ExitCode::kRankFailure);
  state->when_lost = std::move(settings.when_lost);
  if (!settings.pass_on.empty()) {
    sigset_t set;
    ::sigemptyset(&set);
    for (int signal : settings.pass_on) ::sigaddset(&set, signal);
    const int descriptor = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (descriptor < 0)
      return Fail(fmt::format("signalfd: {}", std::strerror(errno)), ExitCode::kRankFailure);
    state->signals.assign(descriptor);
    state->HearSignals();
  }
  state->Read();
  state->Tick();
  state->io.restart();
  state->thread = std::thread([raw = state.get()] {
    ::pthread_setname_np(::pthread_self(), "control");
    raw->io.run();
  });
  return std::unique_ptr<ControlChannel>(new ControlChannel(std::move(state)));
}

ControlChannel::~ControlChannel() {
  asio::post(state_->io, [state = state_.get()] {
    state->closing = true;
    boost::system::error_code ignored;
    state->signals.close(ignored);
    if (state->outgoing.empty()) state->EndSending();
    // A launcher that no longer reads must not hold up the rank.
    state->tick.expires_after(kFarewellDeadline);
    state->tick.async_wait([state](const boost::system::error_code& error) {
      if (!error) state->Close();
    });
  });
  state_->thread.join();
}

void ControlChannel::Send(ControlMessage message) {
  ++state_->unsent;
  asio::post(state_->io, [state = state_.get(), message = std::move(message)] {
    if (!state->closing) state->Push(message);
  });
}

void ControlChannel::Flush(std::chrono::milliseconds patience) {
  if (state_->unsent == 0) return;
  auto flushed = std::make_shared<std::promise<void>>();
  asio::post(state_->io, [state = state_.get(), flushed] {
    state->flushes.push_back(flushed);
    if (state->outgoing.empty()) state->EndFlushes();
  });
  flushed->get_future().wait_for(patience);
}

const LaunchDeadlines& ControlChannel::Deadlines() const { return state_->deadlines; }

bool ControlChannel::WaitForGo() {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, state_->deadlines.hello, [this] { return state_->go; });
}

bool ControlChannel::WaitForGiveUp(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [this] { return state_->give_up; });
}

bool ControlChannel::SumByLauncher(std::span<double> numbers, std::chrono::milliseconds patience) {
  Send(Sum{{numbers.begin(), numbers.end()}});
  std::unique_lock lock(state_->mutex);
  if (!state_->changed.wait_for(lock, patience, [this] { return state_->sum.has_value(); }))
    return false;
  const std::vector<double> sums = *std::exchange(state_->sum, std::nullopt);
  if (sums.size() != numbers.size()) return false;
  std::copy(sums.begin(), sums.end(), numbers.begin());
  return true;
}

void ControlChannel::ObeyedBy(Orders orders) {
  const std::lock_guard lock(state_->mutex);
  state_->orders = std::move(orders);
}

bool ControlChannel::StopAsked() const { return state_->stop_asked; }
bool ControlChannel::StopUnsavedAsked() const { return state_->stop_unsaved_asked; }
bool ControlChannel::EndRoundAsked() const { return state_->end_round_asked; }
bool ControlChannel::TakeCheckpointAsked() { return state_->checkpoint_asked.exchange(false); }
bool ControlChannel::TakeProfileAsked() { return state_->profile_asked.exchange(false); }

std::optional<Shares> ControlChannel::TakeNewShares() {
  const std::lock_guard lock(state_->mutex);
  if (state_->new_shares.empty()) return std::nullopt;
  Shares next = std::move(state_->new_shares.front());
  state_->new_shares.pop_front();
  return next;
}

}  // namespace adaptive_train
