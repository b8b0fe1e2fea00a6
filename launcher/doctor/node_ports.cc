#include "launcher/doctor/node_ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "launcher/steps/local_addresses.h"

namespace adaptive_train {
namespace {

using boost::asio::ip::tcp;
using Clock = std::chrono::steady_clock;

/// A task may start later than another: one that does not listen yet is tried again.
constexpr std::chrono::milliseconds kBetweenTries{100};
/// For one address; a firewall that drops lets it pass.
constexpr std::chrono::milliseconds kOneTry{1500};
/// Tasks of a step start so far apart.
constexpr std::chrono::milliseconds kStart{3000}, kStartOfEach{10};
constexpr std::size_t kMostAddresses = 8;

/// Each takes a file, and a job may have thousands of nodes.
constexpr std::size_t kMostOthers = 64;

std::vector<boost::asio::ip::address> AddressesIn(const std::string& text) {
  std::vector<boost::asio::ip::address> addresses;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(word, error);
    if (!error) addresses.push_back(address);
  }
  return addresses;
}

/// Tries the addresses of another task in turn, until one answers.
class Peer {
 public:
  Peer(boost::asio::io_context& io, std::vector<boost::asio::ip::address> addresses, int port)
      : addresses_(std::move(addresses)), port_(port), socket_(io), timer_(io) {}

  void Try(const std::function<void()>& reached) {
    if (addresses_.empty()) return;
    const tcp::endpoint place(addresses_[next_++ % addresses_.size()],
                              static_cast<std::uint16_t>(port_));
    socket_ = tcp::socket(socket_.get_executor());
    timer_.expires_after(kOneTry);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) socket_.close();
    });
    socket_.async_connect(place, [this, reached](const boost::system::error_code& error) {
      timer_.cancel();
      if (!error) {
        is_reached_ = true;
        return reached();
      }
      timer_.expires_after(kBetweenTries);
      timer_.async_wait([this, reached](const boost::system::error_code& cancelled) {
        if (!cancelled) Try(reached);
      });
    });
  }
  bool IsReached() const { return is_reached_; }

 private:
  const std::vector<boost::asio::ip::address> addresses_;
  const int port_;
  tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::size_t next_ = 0;
  bool is_reached_ = false;
};

/// Calls `come` for each connection.
void Accept(tcp::acceptor& acceptor, const std::function<void()>& come) {
  acceptor.async_accept([&acceptor, come](const boost::system::error_code& error, tcp::socket) {
    if (error) return;
    come();
    Accept(acceptor, come);
  });
}

/// Enough to try all addresses of each.
std::chrono::milliseconds PatienceFor(const std::vector<std::string>& addresses) {
  std::size_t most = 1;
  for (const std::string& of_task : addresses) most = std::max(most, AddressesIn(of_task).size());
  return kStart + static_cast<int>(addresses.size()) * kStartOfEach +
         static_cast<int>(std::min(most, kMostAddresses)) * kOneTry;
}

}  // namespace

Result<tcp::acceptor> ListenAt(boost::asio::io_context& io, int port) {
  tcp::acceptor acceptor(io);
  boost::system::error_code error;
  tcp family = tcp::v6();
  acceptor.open(family, error);
  if (error) {
    family = tcp::v4();
    acceptor.open(family, error);
  } else {
    acceptor.set_option(boost::asio::ip::v6_only(false), error);
  }
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(tcp::endpoint(family, static_cast<std::uint16_t>(port)), error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error)
    return Fail(fmt::format("cannot listen at port {}: {}", port, error.message()),
                ExitCode::kPreflight, error.value());
  return acceptor;
}

Result<std::string> OwnAddresses(const std::string& interface) {
  return LocalAddresses(interface, "").map([](const auto& addresses) {
    std::vector<std::string> texts;
    for (const auto& address : addresses)
      if (!address.is_loopback()) texts.push_back(address.to_string());
    return fmt::format("{}", fmt::join(texts, ","));
  });
}

Result<std::string> ReachOthers(int port, const std::vector<std::string>& addresses,
                                std::size_t self) {
  boost::asio::io_context io;
  auto acceptor = ListenAt(io, port);
  if (!acceptor) return FailIn("busy", std::move(acceptor.error()));
  const std::size_t tasks = addresses.size(), others = std::min(tasks - 1, kMostOthers);
  std::size_t to_reach = others, to_come = others;
  const auto stop_at_the_end = [&] {
    if (to_reach == 0 && to_come == 0) io.stop();
  };
  Accept(*acceptor, [&] {
    if (to_come > 0) --to_come;
    stop_at_the_end();
  });
  // Bridges of containers have the same addresses everywhere, and there is oneself.
  const auto own = AddressesIn(addresses[self]);
  std::map<std::size_t, Peer> peers;
  for (std::size_t i = 1; i <= others; ++i) {
    const std::size_t task = (self + i) % tasks;
    auto of_task = AddressesIn(addresses[task]);
    std::erase_if(of_task, [&](const auto& address) { return std::ranges::count(own, address); });
    peers.try_emplace(task, io, std::move(of_task), port).first->second.Try([&] {
      --to_reach;
      stop_at_the_end();
    });
  }
  stop_at_the_end();  // one alone waits for nobody
  io.run_for(PatienceFor(addresses));
  std::string missed;
  for (const auto& [task, peer] : peers)
    if (!peer.IsReached()) missed += fmt::format(" {}", task);
  return missed.empty() ? "reached" : "missed" + missed;
}

}  // namespace adaptive_train
