// The service's figures by HTTP, for Prometheus.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// Answers `GET /metrics` at a loopback address, as whoever is on this host may read the figures.
/// Each connection is one request, ten at once, with five seconds each. The thread of `io` runs it.
class MetricsPort {
 public:
  /// `text`: the figures in OpenMetrics' format. Errors: ExitCode::kStore, or kUsage for an address
  /// that is none of the loopback's; one line.
  static Result<std::unique_ptr<MetricsPort>> Listen(boost::asio::io_context& io,
                                                     const std::string& address_and_port,
                                                     std::function<std::string()> text);
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

  /// Accepts nobody any more; who is being answered has at most his five seconds.
  void Stop();

 private:
  class Scrape;
  struct Shared;

  MetricsPort(boost::asio::io_context& io, std::function<std::string()> text);
  static void Accept(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
};

}  // namespace adaptive_train
