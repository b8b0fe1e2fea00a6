// adaptive-traind's sockets: accept clients, and pass their requests on.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "db/service/introduction.h"
#include "db/service/log.h"
#include "db/service/request_readers.h"
#include "db/service/request_writer.h"
#include "db/service/rights.h"
#include "db/service/service_metrics.h"
#include "db/service/slurm_questions.h"
#include "db/service/user_budgets.h"

namespace adaptive_train {

/// What clients may take. Whoever passes a limit of one user is refused; whoever is late is
/// disconnected.
struct ServiceLimits {
  std::size_t sessions = 4096, sessions_of_user = 512;
  // Of the requests that are being received or answered.
  std::size_t bytes = std::size_t{512} << 20, bytes_of_user = std::size_t{64} << 20;
  std::chrono::milliseconds hello{5000};   // from the connection to the whole hello
  std::chrono::milliseconds frame{10000};  // from a request's length to its end; and for an answer
  std::chrono::milliseconds idle{600000};  // between an answer and the next request
  // Of a session with another host, which then introduces itself anew.
  std::chrono::milliseconds age{kSessionAge};
  UserBudgets::Limits of_user = {};
};

/// One thread runs `io`. Requests are parsed and answered by the threads of `readers` and `writer`,
/// which must outlive the service.
class StoreService {
 public:
  struct Settings {
    std::filesystem::path socket;
    std::filesystem::path database;  // for its size
    std::filesystem::path metrics;   // the file of ServiceMetrics::Text, every 15 s; empty: none
    Rights rights;
    std::optional<ServiceName> tcp;  // none: no other host may connect
    std::string tcp_listen;          // an address of this host; empty: all of them
    ServiceLimits limits = {};
    Log log;
    /// Asks Slurm about what a user has written. Any thread; must not block. Empty: nobody asks.
    std::function<void(uid_t, const std::vector<SlurmQuestion>&)> ask_slurm = {};
  };

  /// Listens at the socket, which every user may connect to, and at the port of Settings::tcp.
  /// Takes the place of a socket that nobody serves any more. Errors: ExitCode::kStore, one line.
  static Result<std::unique_ptr<StoreService>> Listen(boost::asio::io_context& io,
                                                      Settings settings, RequestReaders& readers,
                                                      RequestWriter& writer);
  ~StoreService();
  StoreService(const StoreService&) = delete;
  StoreService& operator=(const StoreService&) = delete;

  /// Accepts nobody any more, answers the requests that have come and disconnects all. Then
  /// nothing is left to do for `io`, after ten seconds at the latest.
  void Stop();
  /// For requests from now on. Called, as the next, by the thread that runs `io`.
  void Renew(Rights rights, const UserBudgets::Limits& of_user);
  std::string Metrics(MetricsFormat format) const;

 private:
  class Session;
  using SessionPtr = std::shared_ptr<Session>;
  struct Usage {
    std::size_t sessions = 0, bytes = 0;
  };

  StoreService(boost::asio::io_context& io, Settings settings, RequestReaders& readers,
               RequestWriter& writer);
  Result<void> BindLocally();
  Result<void> BindToPort();
  /// Where clients come in.
  template <class Protocol>
  struct Door {
    explicit Door(boost::asio::io_context& io) : acceptor(io) {}
    typename Protocol::acceptor acceptor;
    bool accepting = true;
  };
  template <class Protocol>
  void Accept(Door<Protocol>& door);
  void AcceptAgain();
  void TakeIn(boost::asio::local::stream_protocol::socket socket);
  void TakeIn(boost::asio::ip::tcp::socket socket);
  SessionPtr NewSession(boost::asio::generic::stream_protocol::socket socket, uid_t uid);
  /// Says whose the session is, which was nobody's yet; false if there is no room.
  bool Admit(Session& session, uid_t uid);
  void LeaveUser(uid_t uid);
  void Tick();
  bool MakeRoomFor(uid_t uid);
  bool HasShareLeft(uid_t uid);
  bool DropOldestIdle(uid_t uid);
  bool Reserve(Session& session, std::size_t bytes);
  void Understand(const SessionPtr& session, std::string text);
  void PublishLevels();
  void Remove(const SessionPtr& session);

  boost::asio::io_context& io_;
  Door<boost::asio::local::stream_protocol> local_;
  Door<boost::asio::ip::tcp> port_;
  boost::asio::steady_timer tick_;
  Settings settings_;
  RequestReaders& readers_;
  RequestWriter& writer_;
  std::map<std::uint64_t, SessionPtr> sessions_;  // by number: the oldest first
  std::map<uid_t, Usage> usage_;
  UserBudgets budgets_;
  const std::shared_ptr<ServiceMetrics> metrics_ = std::make_shared<ServiceMetrics>();
  std::chrono::steady_clock::time_point publish_at_;
  bool metrics_told_ = false;  // that they cannot be written
  std::size_t bytes_ = 0;
  std::uint64_t accepted_ = 0;
  bool bound_ = false;  // the socket's file is ours
  bool stopping_ = false;
  std::chrono::steady_clock::time_point stop_by_;
  boost::asio::thread_pool credentials_;  // waits for munged; last: ends first
};

}  // namespace adaptive_train
