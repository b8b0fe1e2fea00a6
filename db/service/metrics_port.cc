#include "db/service/metrics_port.h"

#include <fmt/format.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <utility>

#include "core/file_io.h"
#include "db/store_location.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kScrapeLimit{5}, kRetry{1};
constexpr std::size_t kMostScrapes = 10, kMostHeaderBytes = 8192;
/// openmetrics.io: what a scraper is told of the text.
constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";

}  // namespace

struct MetricsPort::Shared {
  Shared(asio::io_context& io, std::function<std::string()> its_text)
      : acceptor(io), retry(io), text(std::move(its_text)) {}
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  std::function<std::string()> text;  // empty: the port is no more
  std::size_t scrapes = 0;
  bool accepting = false;
};

/// One connection, which keeps itself alive while something of it is under way.
class MetricsPort::Scrape : public std::enable_shared_from_this<Scrape> {
 public:
  Scrape(tcp::socket socket, std::shared_ptr<Shared> shared)
      : stream_(std::move(socket)), shared_(std::move(shared)) {
    ++shared_->scrapes;
  }
  ~Scrape() {
    --shared_->scrapes;
    Accept(shared_);
  }

  void Begin() {
    parser_.header_limit(kMostHeaderBytes);
    parser_.body_limit(0);
    stream_.expires_after(kScrapeLimit);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (!error && self->shared_->text) self->Answer();
                     });
  }

 private:
  void Answer() {
    const auto& request = parser_.get();
    const bool found = request.target() == "/metrics";
    const bool gets = request.method() == http::verb::get;
    response_.version(request.version());
    response_.keep_alive(false);
    response_.result(!gets    ? http::status::method_not_allowed
                     : !found ? http::status::not_found
                              : http::status::ok);
    response_.set(http::field::content_type, gets && found ? kOpenMetrics : "text/plain");
    if (!gets) response_.set(http::field::allow, "GET");
    response_.body() = gets && found ? shared_->text() : "GET /metrics has the figures\n";
    response_.prepare_payload();
    http::async_write(stream_, response_,
                      [self = shared_from_this()](error_code error, std::size_t) {
                        self->stream_.socket().shutdown(tcp::socket::shutdown_send, error);
                      });
  }

  beast::tcp_stream stream_;
  std::shared_ptr<Shared> shared_;
  beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
};

MetricsPort::MetricsPort(asio::io_context& io, std::function<std::string()> text)
    : shared_(std::make_shared<Shared>(io, std::move(text))) {}

MetricsPort::~MetricsPort() {
  Stop();
  shared_->text = nullptr;
}

Result<std::unique_ptr<MetricsPort>> MetricsPort::Listen(asio::io_context& io,
                                                         const std::string& address_and_port,
                                                         std::function<std::string()> text) {
  const auto fail = [&](const std::string& why, ExitCode code) {
    return Fail(fmt::format("--metrics-listen {}: {}", Printable(address_and_port, 100), why),
                code);
  };
  const auto place = ParseHostAndPort(address_and_port);
  error_code error;
  const asio::ip::address address =
      place ? asio::ip::make_address(place->host, error) : asio::ip::address();
  if (!place || error || !address.is_loopback())
    return fail("allowed is a loopback address with a port, as in 127.0.0.1:9464",
                ExitCode::kUsage);
  std::unique_ptr<MetricsPort> port(new MetricsPort(io, std::move(text)));
  tcp::acceptor& acceptor = port->shared_->acceptor;
  const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(std::stoul(place->port)));
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) return fail("cannot listen: " + error.message(), ExitCode::kStore);
  Accept(port->shared_);
  return port;
}

/// Unless it does already, or has enough to do.
void MetricsPort::Accept(const std::shared_ptr<Shared>& shared) {
  if (shared->accepting || !shared->acceptor.is_open() || shared->scrapes >= kMostScrapes) return;
  shared->accepting = true;
  shared->acceptor.async_accept([shared](const error_code& error, tcp::socket socket) {
    shared->accepting = false;
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      std::make_shared<Scrape>(std::move(socket), shared)->Begin();
      return Accept(shared);
    }
    // Out of descriptors, perhaps: others need them more.
    shared->retry.expires_after(kRetry);
    shared->retry.async_wait([shared](const error_code& ended) {
      if (!ended) Accept(shared);
    });
  });
}

void MetricsPort::Stop() {
  error_code ignored;
  shared_->acceptor.close(ignored);
  shared_->retry.cancel();
}

}  // namespace adaptive_train
