#include "launcher/steps/control_server.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <deque>
#include <vector>

namespace adaptive_train {
namespace {

/// Who connects and says nothing is let go after this time; so many may wait at once beside the
/// ranks.
constexpr std::chrono::seconds kGreetingDeadline{10};
constexpr std::size_t kMostStrangers = 64;

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

/// The IPv4 addresses of interfaces that are up, loopback last.
std::vector<std::string> LocalAddresses() {
  std::vector<std::string> outside, loopback;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {"127.0.0.1"};
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET ||
        (entry->ifa_flags & IFF_UP) == 0)
      continue;
    const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    const auto text = asio::ip::address_v4(ntohl(in->sin_addr.s_addr)).to_string();
    ((entry->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : outside).push_back(text);
  }
  ::freeifaddrs(list);
  outside.insert(outside.end(), loopback.begin(), loopback.end());
  return outside;
}

/// Compares without telling by its duration where the difference is.
bool SameToken(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace

class ControlServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, ControlServer* server)
      : socket_(std::move(socket)), server_(server) {}

  void Read() {
    socket_.async_read_some(
        asio::buffer(block_),
        [self = shared_from_this()](const boost::system::error_code& error, std::size_t n) {
          if (self->server_ == nullptr) return;
          if (error)
            return self->server_->Closed(
                self, error == asio::error::eof ? "the process ended" : error.message());
          self->heard = Clock::now();
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
  char block_[16384];
  std::deque<std::string> outgoing_;  // the first is being written
};

ControlServer::ControlServer(asio::io_context& io, int ranks, std::string token, Events events)
    : acceptor_(io),
      tick_(io),
      size_(ranks),
      token_(std::move(token)),
      events_(std::move(events)) {}

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(asio::io_context& io, int ranks,
                                                             std::string token, Events events) {
  std::unique_ptr<ControlServer> self(
      new ControlServer(io, ranks, std::move(token), std::move(events)));
  boost::system::error_code error;
  self->acceptor_.open(tcp::v4(), error);
  if (!error) self->acceptor_.bind(tcp::endpoint(tcp::v4(), 0), error);
  if (!error) self->acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return Fail("control channel: cannot listen: " + error.message(), ExitCode::kPreflight);
  for (const std::string& address : LocalAddresses()) {
    self->addresses_ += fmt::format("{}{}:{}", self->addresses_.empty() ? "" : ",", address,
                                    self->acceptor_.local_endpoint().port());
  }
  self->Accept();
  self->Tick();
  return self;
}

ControlServer::~ControlServer() {
  for (auto& [rank, connection] : ranks_) connection->Drop();
  for (const auto& connection : strangers_) connection->Drop();
}

void ControlServer::Accept() {
  acceptor_.async_accept([this, alive = std::weak_ptr<bool>(alive_)](
                             const boost::system::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || alive.expired()) return;
    // Out of descriptors, or a crowd of strangers: the next tick accepts again.
    const std::size_t most = static_cast<std::size_t>(size_) + kMostStrangers;
    if (error || strangers_.size() >= most) {
      accepting_ = false;
      return;
    }
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto connection = std::make_shared<Connection>(std::move(socket), this);
    strangers_.insert(connection);
    connection->Read();
    Accept();
  });
}

/// Ranks that have been silent for too long and were not told of before.
std::vector<int> ControlServer::LookForSilence() {
  const auto now = Clock::now();
  // If this side was held up (a stalled file system, a stopped process), what the ranks said
  // meanwhile may still be unread: nobody is accused of our own silence.
  const bool held_up = now - ticked_ > 2 * kHeartbeatPeriod;
  ticked_ = now;
  std::vector<int> silent;
  for (auto& [rank, connection] : ranks_) {
    if (held_up) connection->heard = now;
    if (connection->silence_told || now - connection->heard <= kRankSilenceLimit) continue;
    connection->silence_told = true;
    silent.push_back(rank);
  }
  return silent;
}

void ControlServer::Tick() {
  tick_.expires_after(kHeartbeatPeriod);
  tick_.async_wait(
      [this, alive = std::weak_ptr<bool>(alive_)](const boost::system::error_code& error) {
        if (error || alive.expired()) return;
        SendAll(Heartbeat{});
        for (auto it = strangers_.begin(); it != strangers_.end();) {
          const bool mute = Clock::now() - (*it)->heard > kGreetingDeadline;
          if (mute) (*it)->Drop();
          it = mute ? strangers_.erase(it) : std::next(it);
        }
        if (!std::exchange(accepting_, true)) Accept();
        const std::vector<int> silent = LookForSilence();
        Tick();
        for (int rank : silent) events_.on_silent(rank);
      });
}

void ControlServer::Greet(const std::shared_ptr<Connection>& connection,
                          const ControlMessage& first) {
  strangers_.erase(connection);
  const auto* hello = std::get_if<Hello>(&first);
  const bool good = hello != nullptr && SameToken(hello->token, token_) && hello->rank >= 0 &&
                    hello->rank < size_ && !Connected(hello->rank);
  if (!good) return connection->Drop();  // a stranger, or a rank of an attempt that is over
  connection->rank = hello->rank;
  ranks_[hello->rank] = connection;
  events_.on_hello(*hello);
}

void ControlServer::Dispatch(const std::shared_ptr<Connection>& connection,
                             const ControlMessage& message) {
  if (std::holds_alternative<Heartbeat>(message)) return;
  events_.on_message(connection->rank, message);
}

void ControlServer::Closed(const std::shared_ptr<Connection>& connection, const std::string& why) {
  const int rank = connection->rank;
  strangers_.erase(connection);
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
