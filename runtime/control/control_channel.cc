#include "runtime/control/control_channel.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>  // Boost 1.74 uses std::exchange without it

#include <boost/asio.hpp>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "core/limits.h"
#include "core/rank_exit.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

/// For one address; all of them together get twice that.
constexpr std::chrono::seconds kConnectDeadline{4};
constexpr std::chrono::seconds kFarewellDeadline{1};

/// Ends the process from any thread, also if its log is on a file system that hangs: then by
/// SIGALRM.
[[noreturn]] void EndProcess(RankExit code, const std::string& why) {
  ::alarm(2);
  std::fprintf(stderr, "adaptive-train-worker: %s; the rank ends\n", why.c_str());
  std::fflush(stderr);
  std::_Exit(ToInt(code));
}

Result<tcp::endpoint> ParseEndpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  boost::system::error_code error;
  const auto address = asio::ip::make_address(text.substr(0, colon), error);
  const int port = colon == std::string::npos ? 0 : std::atoi(text.c_str() + colon + 1);
  if (error || port < 1 || port > 65535) {
    return Fail("launcher address \"" + text + "\" is not IP:PORT", ExitCode::kRankFailure);
  }
  return tcp::endpoint(address, static_cast<unsigned short>(port));
}

/// The first address that answers.
Result<tcp::socket> ConnectAny(asio::io_context& io, const std::string& addresses) {
  std::string tried;
  const auto give_up = Clock::now() + 2 * kConnectDeadline;
  for (std::size_t begin = 0; begin < addresses.size() && Clock::now() < give_up;) {
    const auto comma = std::min(addresses.find(',', begin), addresses.size());
    auto endpoint = ParseEndpoint(addresses.substr(begin, comma - begin));
    if (!endpoint) return tl::unexpected(endpoint.error());
    begin = comma + 1;
    tcp::socket socket(io);
    boost::system::error_code outcome = asio::error::timed_out;
    socket.async_connect(*endpoint,
                         [&](const boost::system::error_code& error) { outcome = error; });
    io.restart();
    io.run_for(kConnectDeadline);
    if (!outcome) return socket;
    tried += fmt::format("{}{}:{}: {}", tried.empty() ? "" : ", ", endpoint->address().to_string(),
                         endpoint->port(), outcome.message());
    boost::system::error_code ignored;
    socket.close(ignored);
    io.restart();
    io.run_for(std::chrono::milliseconds(100));  // lets the cancelled connect finish
  }
  return Fail("no launcher at " + tried, ExitCode::kRankFailure);
}

}  // namespace

struct ControlChannel::State {
  asio::io_context io;
  tcp::socket socket{io};
  asio::steady_timer tick{io};
  std::thread thread;
  FrameReader reader;
  char block[8192];
  std::deque<std::string> outgoing;  // the first is being written
  Clock::time_point heard = Clock::now(), ticked = heard;
  bool closing = false;

  std::atomic<bool> stop_asked{false};
  std::atomic<bool> checkpoint_asked{false};
  std::atomic<bool> profile_asked{false};
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false;  // guarded by mutex

  void Read();
  void Write();
  void Enqueue(const ControlMessage& message);
  void Close();
  void Tick();
  void Obey(const ControlMessage& message);
  void LoseLauncher(const std::string& why) {
    if (!closing) EndProcess(RankExit::kLauncherLost, "lost the launcher (" + why + ")");
  }
};

void ControlChannel::State::Read() {
  socket.async_read_some(
      asio::buffer(block), [this](const boost::system::error_code& error, std::size_t n) {
        if (error)
          return LoseLauncher(error == asio::error::eof ? "it closed the control channel"
                                                        : error.message());
        heard = Clock::now();
        reader.Feed(std::string_view(block, n));
        for (;;) {
          auto message = reader.Next();
          if (!message) return LoseLauncher(message.error().message);
          if (!*message) break;
          Obey(**message);
        }
        Read();
      });
}

void ControlChannel::State::Obey(const ControlMessage& message) {
  if (const auto* abort = std::get_if<Abort>(&message))
    EndProcess(RankExit::kAborted, "the launcher says: " + abort->reason);
  if (std::holds_alternative<Stop>(message)) stop_asked = true;
  if (std::holds_alternative<CheckpointNow>(message)) checkpoint_asked = true;
  if (std::holds_alternative<ProfileNow>(message)) profile_asked = true;
  if (std::holds_alternative<Go>(message)) {
    std::lock_guard lock(mutex);
    go = true;
    changed.notify_all();
  }
}

void ControlChannel::State::Enqueue(const ControlMessage& message) {
  outgoing.push_back(EncodeFrame(message));
  if (outgoing.size() == 1) Write();
}

void ControlChannel::State::Write() {
  asio::async_write(socket, asio::buffer(outgoing.front()),
                    [this](const boost::system::error_code& error, std::size_t) {
                      if (error) return LoseLauncher(error.message());
                      outgoing.pop_front();
                      if (!outgoing.empty()) return Write();
                      if (closing) Close();
                    });
}

void ControlChannel::State::Close() {
  boost::system::error_code ignored;
  tick.cancel(ignored);
  socket.shutdown(tcp::socket::shutdown_both, ignored);
  socket.close(ignored);
}

void ControlChannel::State::Tick() {
  tick.expires_after(kHeartbeatPeriod);
  tick.async_wait([this](const boost::system::error_code& error) {
    if (error || closing) return;
    // If this side was held up (a suspended machine, a stopped process), so may the launcher have
    // been, and what it said meanwhile may still be unread.
    const auto now = Clock::now();
    if (now - ticked > 2 * kHeartbeatPeriod) heard = now;
    ticked = now;
    if (now - heard > kLauncherSilenceLimit) {
      LoseLauncher(fmt::format("nothing heard for {} s", kLauncherSilenceLimit.count() / 1000));
    }
    Enqueue(Heartbeat{});
    Tick();
  });
}

ControlChannel::ControlChannel(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<ControlChannel>> ControlChannel::Connect(Settings settings) {
  auto state = std::make_unique<State>();
  auto socket = ConnectAny(state->io, settings.addresses);
  if (!socket) return tl::unexpected(socket.error());
  state->socket = std::move(*socket);
  boost::system::error_code ignored;
  state->socket.set_option(tcp::no_delay(true), ignored);
  state->heard = state->ticked = Clock::now();
  state->Enqueue(settings.hello);
  state->Read();
  state->Tick();
  state->io.restart();
  state->thread = std::thread([raw = state.get()] { raw->io.run(); });
  return std::unique_ptr<ControlChannel>(new ControlChannel(std::move(state)));
}

ControlChannel::~ControlChannel() {
  asio::post(state_->io, [state = state_.get()] {
    state->closing = true;
    if (state->outgoing.empty()) return state->Close();
    // A launcher that reads no more must not hold the rank.
    state->tick.expires_after(kFarewellDeadline);
    state->tick.async_wait([state](const boost::system::error_code& error) {
      if (!error) state->Close();
    });
  });
  state_->thread.join();
}

void ControlChannel::Send(ControlMessage message) {
  asio::post(state_->io, [state = state_.get(), message = std::move(message)] {
    if (!state->closing) state->Enqueue(message);
  });
}

bool ControlChannel::WaitForGo(std::chrono::milliseconds deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, deadline, [this] { return state_->go; });
}

bool ControlChannel::StopAsked() const { return state_->stop_asked; }
bool ControlChannel::TakeCheckpointAsked() { return state_->checkpoint_asked.exchange(false); }
bool ControlChannel::TakeProfileAsked() { return state_->profile_asked.exchange(false); }

}  // namespace adaptive_train
