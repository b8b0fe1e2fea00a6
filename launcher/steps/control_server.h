// The launcher's end of the control channel: accepts ranks that prove that they know the token and
// passes on what they say.
#pragma once

#include <utility>  // Boost 1.74 uses std::exchange without it

#include <boost/asio.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/control_message.h"
#include "core/launch_settings.h"

namespace adaptive_train {

/// Serves one attempt. Threads: everything on the one that runs `io`. Nothing blocks.
///
/// Who has connected is a stranger until its hello proves that it knows the token. A stranger has
/// kGreetingDeadline and kMaxStrangerBytes for that. There are never more strangers than the ranks
/// that are still to come and kMostStrangers; who comes then takes the place of the one that has
/// been there for longest. A rank that lost its place so tries again.
class ControlServer {
 public:
  struct Events {
    /// A rank that is not connected yet has proved that it knows the token. Its later messages come through
    /// on_message.
    std::function<void(const Hello&)> on_hello;
    std::function<void(int rank, const ControlMessage&)> on_message;
    /// The connection is gone; `why` is one line. Not called for connections that this side closed.
    std::function<void(int rank, const std::string& why)> on_closed;
    /// A rank was silent for deadlines.rank_silence. Called once a rank; its connection stays.
    std::function<void(int rank)> on_silent;
  };

  static constexpr std::chrono::seconds kGreetingDeadline{10};
  static constexpr std::size_t kMostStrangers = 64;

  struct Settings {
    int ranks = 0;
    std::string token;
    LaunchDeadlines deadlines;       // silence is told here, the others to ranks
    std::string interface = "auto";  // whose addresses ranks are told
    PortRange ports;
    std::string first_rank;  // IP address of the first rank's host; empty: not known
  };

  /// Listens on a port of the range, on all addresses of this host. Fails with kPreflight.
  static Result<std::unique_ptr<ControlServer>> Listen(boost::asio::io_context& io,
                                                       Settings settings, Events events);
  ~ControlServer();

  /// "10.0.0.1:4711,[fd00::1]:4711,...,127.0.0.1:4711": the address that reaches the first rank,
  /// others of this host, loopback last.
  const std::string& Addresses() const { return addresses_; }
  void Send(int rank, const ControlMessage& message);
  void SendAll(const ControlMessage& message);
  bool Connected(int rank) const { return ranks_.count(rank) != 0; }
  bool AnyConnected() const { return !ranks_.empty(); }
  /// Whether a rank is connected and was not heard for longer than `time`.
  bool Quiet(int rank, std::chrono::milliseconds time) const;

 private:
  class Connection;

  ControlServer(boost::asio::io_context& io, Settings settings, Events events);
  boost::system::error_code ListenOn(int port);
  Result<void> Bind();
  void Accept();
  void TakeIn(boost::asio::ip::tcp::socket socket);
  void DropOldestStranger();
  void DropLateStrangers();
  void Tick();
  std::vector<int> LookForSilence();
  void Greet(const std::shared_ptr<Connection>& connection, const ControlMessage& first);
  bool Believes(const Connection& connection, const Hello& hello) const;
  void Dispatch(const std::shared_ptr<Connection>& connection, const ControlMessage& message);
  void Closed(const std::shared_ptr<Connection>& connection, const std::string& why);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer tick_;
  const Settings settings_;
  Events events_;
  std::string addresses_;
  std::map<int, std::shared_ptr<Connection>> ranks_;
  bool accepting_ = true;
  std::uint64_t ticks_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Connection>>
      strangers_;  // by number, so the oldest first
  std::uint64_t connections_ = 0;
  std::chrono::steady_clock::time_point ticked_ = std::chrono::steady_clock::now();
  // Handlers that are queued when this object goes hold a weak reference to this and then do
  // nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace adaptive_train
