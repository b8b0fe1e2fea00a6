#include "launcher/steps/control_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "core/file_limit.h"
#include "core/token_proof.h"
#include "launcher/steps/local_addresses.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

/// How often silence is looked for, and so how late it is noticed at most.
constexpr std::chrono::milliseconds kTickPeriod = 50ms;
constexpr int kTicksOfAHeartbeat = kHeartbeatPeriod / kTickPeriod;
/// A tick that is later than this shows that this side was held up.
constexpr std::chrono::milliseconds kLateTick = 500ms;
/// Logs, pipes, the store: what the launcher has open beside its ranks' connections.
constexpr std::size_t kOtherFiles = 128;

}  // namespace

class ControlServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, ControlServer* server, std::uint64_t its_number)
      : number(its_number), socket_(std::move(socket)), server_(server) {}

  void Begin() {
    Send(challenge);
    Read();
  }

  void Read() {
    socket_.async_read_some(
        asio::buffer(block_),
        [self = shared_from_this()](const boost::system::error_code& error, std::size_t n) {
          if (self->server_ == nullptr) return;
          if (error)
            return self->server_->Closed(
                self, error == asio::error::eof ? "the process ended" : error.message());
          self->heard = Clock::now();
          self->bytes_ += n;
          if (self->rank < 0 && self->bytes_ > kMaxStrangerBytes)
            return self->server_->Closed(self, "a stranger that says too much");
          self->reader_.Feed(std::string_view(self->block_, n));
          self->Deliver();
        });
  }

  void Send(const ControlMessage& message) {
    outgoing_.push_back(EncodeFrame(message));
    if (outgoing_.size() == 1) Write();
  }

  /// Forgets the server and closes; nothing is reported any more.
  void Drop() {
    server_ = nullptr;
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

  const std::uint64_t number;
  const Challenge challenge{NewNonce()};
  const Clock::time_point accepted = Clock::now();
  int rank = -1;  // known after the hello
  Clock::time_point heard = Clock::now();
  bool silence_told = false;

 private:
  void Deliver() {
    while (server_ != nullptr) {
      auto message = reader_.Next();
      if (!message) return server_->Closed(shared_from_this(), message.error().message);
      if (!*message) return Read();
      if (rank < 0) {
        server_->Greet(shared_from_this(), **message);
      } else {
        server_->Dispatch(shared_from_this(), **message);
      }
    }
  }

  void Write() {
    asio::async_write(
        socket_, asio::buffer(outgoing_.front()),
        [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
          // A broken connection is reported by the read that is always under way.
          if (error || self->server_ == nullptr) return;
          self->outgoing_.pop_front();
          if (!self->outgoing_.empty()) self->Write();
        });
  }

  tcp::socket socket_;
  ControlServer* server_;
  FrameReader reader_;
  std::size_t bytes_ = 0;  // received
  char block_[16384];
  std::deque<std::string> outgoing_;  // the first is being written
};

ControlServer::ControlServer(asio::io_context& io, Settings settings, Events events)
    : acceptor_(io), tick_(io), settings_(std::move(settings)), events_(std::move(events)) {}

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(asio::io_context& io,
                                                             Settings settings, Events events) {
  std::unique_ptr<ControlServer> self(
      new ControlServer(io, std::move(settings), std::move(events)));
  const auto needed =
      static_cast<std::size_t>(self->settings_.ranks) + kMostStrangers + kOtherFiles;
  if (const std::size_t allowed = RaiseFileLimit(); allowed < needed)
    return Fail(
        fmt::format("control channel: {} ranks need {} open files here, and the limit is {}: "
                    "raise it (ulimit -Hn, or LimitNOFILE of slurmd)",
                    self->settings_.ranks, needed, allowed),
        ExitCode::kPreflight);
  auto addresses = LocalAddresses(self->settings_.interface, self->settings_.first_rank);
  if (!addresses) return tl::unexpected(addresses.error());
  if (auto bound = self->Bind(); !bound) return tl::unexpected(bound.error());
  const auto port = self->acceptor_.local_endpoint().port();
  const bool only_v4 = self->acceptor_.local_endpoint().address().is_v4();
  for (const asio::ip::address& address : *addresses) {
    if (only_v4 && address.is_v6()) continue;
    if (!self->addresses_.empty()) self->addresses_ += ",";
    const std::string host = address.to_string();
    self->addresses_ += fmt::format("{}:{}", address.is_v6() ? "[" + host + "]" : host, port);
  }
  self->Accept();
  self->Tick();
  return self;
}

/// One socket for IPv4 and IPv6, or for IPv4 where this host has no other.
boost::system::error_code ControlServer::ListenOn(int port) {
  boost::system::error_code error, ignored;
  acceptor_.close(ignored);
  acceptor_.open(tcp::v6(), error);
  if (!error) acceptor_.set_option(asio::ip::v6_only(false), error);
  const auto family = error ? tcp::v4() : tcp::v6();
  if (error) {
    acceptor_.close(ignored);
    acceptor_.open(family, error);
  }
  if (!error && port > 0) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(tcp::endpoint(family, static_cast<unsigned short>(port)), error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

/// The first port of the range that is free. Two launchers may bind one and the same: the second
/// learns of the first as it listens, and needs a new socket for the next port.
Result<void> ControlServer::Bind() {
  const PortRange& ports = settings_.ports;
  boost::system::error_code error;
  for (int port = ports.first; port <= ports.last; ++port) {
    error = ListenOn(port);
    if (!error) return {};
    if (error != asio::error::address_in_use) break;
  }
  const std::string where =
      ports.first == 0 ? ""
                       : fmt::format(" on ports {} to {} (launch.ports)", ports.first, ports.last);
  return Fail(fmt::format("control channel: cannot listen{}: {}", where, error.message()),
              ExitCode::kPreflight);
}

ControlServer::~ControlServer() {
  for (auto& [rank, connection] : ranks_) connection->Drop();
  for (auto& [number, connection] : strangers_) connection->Drop();
}

void ControlServer::Accept() {
  acceptor_.async_accept([this, alive = std::weak_ptr<bool>(alive_)](
                             const boost::system::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || alive.expired()) return;
    if (!error) {
      TakeIn(std::move(socket));
      return Accept();
    }
    // Out of descriptors: a stranger gives its own back; without one, the next tick accepts again.
    accepting_ = !strangers_.empty();
    if (!accepting_) return;
    DropOldestStranger();
    Accept();
  });
}

void ControlServer::TakeIn(tcp::socket socket) {
  const std::size_t missing = static_cast<std::size_t>(settings_.ranks) - ranks_.size();
  if (strangers_.size() >= kMostStrangers + missing) DropOldestStranger();
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  auto connection = std::make_shared<Connection>(std::move(socket), this, ++connections_);
  strangers_[connections_] = connection;
  connection->Begin();
}

void ControlServer::DropOldestStranger() {
  strangers_.begin()->second->Drop();
  strangers_.erase(strangers_.begin());
}

void ControlServer::DropLateStrangers() {
  while (!strangers_.empty() &&
         Clock::now() - strangers_.begin()->second->accepted > kGreetingDeadline)
    DropOldestStranger();
}

/// Ranks that have been silent for too long and were not told of before.
std::vector<int> ControlServer::LookForSilence() {
  const auto now = Clock::now();
  // While this side is held up (a stalled file system, a stopped machine), so may the ranks be: that
  // time is not their silence. A tick that is a little late takes nothing from them, as what they
  // have said is read before it. Under load most are, and that would add up to a late detection.
  auto held_up = now - ticked_ - kTickPeriod;
  if (held_up <= kLateTick) held_up = {};
  ticked_ = now;
  std::vector<int> silent;
  for (auto& [rank, connection] : ranks_) {
    connection->heard = std::min(now, connection->heard + held_up);
    if (connection->silence_told || now - connection->heard <= settings_.deadlines.rank_silence)
      continue;
    connection->silence_told = true;
    silent.push_back(rank);
  }
  return silent;
}

/// As of the last tick: since then this side may have been held up, and what came is not read.
bool ControlServer::Quiet(int rank, std::chrono::milliseconds time) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && ticked_ - found->second->heard > time;
}

void ControlServer::Tick() {
  tick_.expires_after(kTickPeriod);
  tick_.async_wait(
      [this, alive = std::weak_ptr<bool>(alive_)](const boost::system::error_code& error) {
        if (error || alive.expired()) return;
        if (ticks_++ % kTicksOfAHeartbeat == 0) SendAll(Heartbeat{});
        DropLateStrangers();
        if (!std::exchange(accepting_, true)) Accept();
        const std::vector<int> silent = LookForSilence();
        Tick();
        for (int rank : silent) events_.on_silent(rank);
      });
}

bool ControlServer::Believes(const Connection& connection, const Hello& hello) const {
  return SameProof(hello.proof, ProofOf(settings_.token, connection.challenge, hello)) &&
         hello.rank >= 0 && hello.rank < settings_.ranks && !Connected(hello.rank);
}

void ControlServer::Greet(const std::shared_ptr<Connection>& connection,
                          const ControlMessage& first) {
  strangers_.erase(connection->number);
  const auto* hello = std::get_if<Hello>(&first);
  // A stranger, or a rank of an attempt that is over.
  if (hello == nullptr || !Believes(*connection, *hello)) return connection->Drop();
  connection->rank = hello->rank;
  ranks_[hello->rank] = connection;
  const LaunchDeadlines& deadlines = settings_.deadlines;
  Welcome welcome{"", deadlines.pmix_init.count(), deadlines.hello.count(), deadlines.fence.count(),
                  deadlines.launcher_silence.count()};
  welcome.proof = ProofOf(settings_.token, connection->challenge, *hello, welcome);
  connection->Send(welcome);
  events_.on_hello(*hello);
}

void ControlServer::Dispatch(const std::shared_ptr<Connection>& connection,
                             const ControlMessage& message) {
  if (std::holds_alternative<Heartbeat>(message)) return;
  events_.on_message(connection->rank, message);
}

void ControlServer::Closed(const std::shared_ptr<Connection>& connection, const std::string& why) {
  const int rank = connection->rank;
  strangers_.erase(connection->number);
  connection->Drop();
  if (rank < 0) return;
  ranks_.erase(rank);
  events_.on_closed(rank, why);
}

void ControlServer::Send(int rank, const ControlMessage& message) {
  auto found = ranks_.find(rank);
  if (found != ranks_.end()) found->second->Send(message);
}

void ControlServer::SendAll(const ControlMessage& message) {
  for (auto& [rank, connection] : ranks_) connection->Send(message);
}

}  // namespace adaptive_train
