#include "runtime/control/find_launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <vector>

#include "core/file_io.h"
#include "core/token_proof.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

/// Deadlines for one address, and for all addresses in all rounds.
constexpr std::chrono::seconds kAddressDeadline{4};
constexpr std::chrono::seconds kSearchDeadline{30};
constexpr std::chrono::milliseconds kBetweenRounds{200};

/// "10.0.0.1:4711" or "[fd00::1]:4711".
Result<tcp::endpoint> ParseEndpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  int port = 0;
  if (colon != std::string::npos)
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (error || port < 1 || port > 65535) {
    return Fail("launcher address \"" + Printable(text, 60) + "\" is not IP:PORT",
                ExitCode::kRankFailure);
  }
  return tcp::endpoint(address, static_cast<unsigned short>(port));
}

Result<std::vector<tcp::endpoint>> ParseEndpoints(const std::string& addresses) {
  std::vector<tcp::endpoint> endpoints;
  for (std::size_t begin = 0; begin < addresses.size();) {
    const auto comma = std::min(addresses.find(',', begin), addresses.size());
    auto endpoint = ParseEndpoint(addresses.substr(begin, comma - begin));
    if (!endpoint) return tl::unexpected(endpoint.error());
    endpoints.push_back(*endpoint);
    begin = comma + 1;
  }
  return endpoints;
}

/// One attempt at one address: connect, read the challenge, send hello, read the welcome.
class Greeting {
 public:
  Greeting(asio::io_context& io, const std::string& token, Hello hello)
      : io_(io), socket_(io), token_(token), hello_(std::move(hello)) {
    hello_.nonce = NewNonce();
  }

  /// True if both sides have proved themselves.
  bool Try(const tcp::endpoint& endpoint, Clock::time_point deadline) {
    socket_.async_connect(endpoint, [this](const boost::system::error_code& error) {
      if (error) return End(error.message());
      connected_ = true;
      boost::system::error_code ignored;
      socket_.set_option(tcp::no_delay(true), ignored);
      Read();
    });
    io_.restart();
    io_.run_until(deadline);
    if (welcomed_) return true;
    if (why_.empty()) why_ = connected_ ? "no word of a launcher" : "no answer";
    boost::system::error_code ignored;
    socket_.close(ignored);
    io_.restart();
    io_.run();  // runs only the cancelled handlers
    return false;
  }

  FoundLauncher Take() { return {std::move(socket_), std::move(reader_), deadlines_}; }
  const std::string& Why() const { return why_; }
  /// It answered, but not as this run's launcher does. Otherwise a link may have been down, or the
  /// launcher without time.
  bool IsAnother() const { return is_another_; }

 private:
  void End(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  void Refuse(const std::string& why) {
    is_another_ = true;
    End(why);
  }

  void Read() {
    socket_.async_read_some(
        asio::buffer(block_), [this](const boost::system::error_code& error, std::size_t n) {
          if (error == asio::error::operation_aborted) return;
          if (error) return End("it closed the connection before it proved to be the launcher");
          bytes_ += n;
          reader_.Feed(std::string_view(block_, n));
          Understand();
        });
  }

  void Understand() {
    while (why_.empty()) {
      auto message = reader_.Next();
      if (!message || bytes_ > kMaxStrangerBytes)
        return Refuse("not a launcher: it does not say so");
      if (!*message) return Read();
      if (std::holds_alternative<Challenge>(**message) && challenge_.nonce.empty()) {
        challenge_ = std::get<Challenge>(std::move(**message));
        SayHello();
      } else if (const auto* welcome = std::get_if<Welcome>(&**message)) {
        return Judge(*welcome);
      } else {
        return Refuse("not a launcher: it speaks out of turn");
      }
    }
  }

  void SayHello() {
    hello_.proof = ProofOf(token_, challenge_, hello_);
    frame_ = EncodeFrame(hello_);
    asio::async_write(socket_, asio::buffer(frame_),
                      [](const boost::system::error_code&, std::size_t) {});  // the read tells
  }

  void Judge(const Welcome& welcome) {
    const bool proved = !challenge_.nonce.empty() &&
                        SameProof(welcome.proof, ProofOf(token_, challenge_, hello_, welcome));
    if (!proved) return Refuse("not this run's launcher: it does not know the token");
    deadlines_.pmix_init = std::chrono::milliseconds(welcome.pmix_init_ms);
    deadlines_.hello = std::chrono::milliseconds(welcome.go_ms);
    deadlines_.fence = std::chrono::milliseconds(welcome.fence_ms);
    deadlines_.launcher_silence = std::chrono::milliseconds(welcome.silence_ms);
    welcomed_ = true;
  }

  asio::io_context& io_;
  tcp::socket socket_;
  const std::string& token_;
  Hello hello_;
  Challenge challenge_;
  FrameReader reader_;
  LaunchDeadlines deadlines_;
  std::string frame_, why_;
  char block_[2048];
  std::size_t bytes_ = 0;
  bool connected_ = false, welcomed_ = false, is_another_ = false;
};

}  // namespace

Result<FoundLauncher> FindLauncher(asio::io_context& io, const std::string& addresses,
                                   const std::string& token, Hello hello) {
  auto endpoints = ParseEndpoints(addresses);
  if (!endpoints) return tl::unexpected(endpoints.error());
  const auto give_up = Clock::now() + kSearchDeadline;
  std::string tried;
  for (bool again = true; again && Clock::now() < give_up;) {
    again = false;
    tried.clear();
    for (const tcp::endpoint& endpoint : *endpoints) {
      Greeting greeting(io, token, hello);
      if (greeting.Try(endpoint, std::min(give_up, Clock::now() + kAddressDeadline)))
        return greeting.Take();
      again = again || !greeting.IsAnother();
      tried += fmt::format("{}{} port {}: {}", tried.empty() ? "" : ", ",
                           endpoint.address().to_string(), endpoint.port(), greeting.Why());
    }
    asio::steady_timer pause(io, again ? kBetweenRounds : std::chrono::milliseconds(0));
    pause.wait();
  }
  return Fail("no launcher at " + tried, ExitCode::kRankFailure);
}

}  // namespace adaptive_train
