// The launcher's end of the control channel: accepts ranks that know the token and passes on what
// they say.
#pragma once

#include <utility>  // Boost 1.74 uses std::exchange without it

#include <boost/asio.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/control_message.h"

namespace adaptive_train {

/// Serves one attempt. Threads: everything on the one that runs `io`. Nothing blocks.
class ControlServer {
 public:
  struct Events {
    /// A rank that is not connected yet has shown the token. Its later messages come through
    /// on_message.
    std::function<void(const Hello&)> on_hello;
    std::function<void(int rank, const ControlMessage&)> on_message;
    /// The connection is gone; `why` is one line. Not called for connections that this side closed.
    std::function<void(int rank, const std::string& why)> on_closed;
    /// A rank was silent for kRankSilenceLimit. Called once a rank; its connection stays.
    std::function<void(int rank)> on_silent;
  };

  /// Listens on a free port on all addresses of this host.
  static Result<std::unique_ptr<ControlServer>> Listen(boost::asio::io_context& io, int ranks,
                                                       std::string token, Events events);
  ~ControlServer();

  /// "10.0.0.1:4711,...,127.0.0.1:4711": every address of this host, loopback last.
  const std::string& Addresses() const { return addresses_; }
  void Send(int rank, const ControlMessage& message);
  void SendAll(const ControlMessage& message);
  bool Connected(int rank) const { return ranks_.count(rank) != 0; }
  bool AnyConnected() const { return !ranks_.empty(); }

 private:
  class Connection;

  ControlServer(boost::asio::io_context& io, int ranks, std::string token, Events events);
  void Accept();
  void Tick();
  std::vector<int> LookForSilence();
  void Greet(const std::shared_ptr<Connection>& connection, const ControlMessage& first);
  void Dispatch(const std::shared_ptr<Connection>& connection, const ControlMessage& message);
  void Closed(const std::shared_ptr<Connection>& connection, const std::string& why);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer tick_;
  const int size_;
  const std::string token_;
  Events events_;
  std::string addresses_;
  std::map<int, std::shared_ptr<Connection>> ranks_;
  bool accepting_ = true;
  std::set<std::shared_ptr<Connection>> strangers_;  // accepted, no hello yet
  std::chrono::steady_clock::time_point ticked_ = std::chrono::steady_clock::now();
  // Handlers that are queued when this object goes hold a weak reference to this and then do
  // nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace adaptive_train
