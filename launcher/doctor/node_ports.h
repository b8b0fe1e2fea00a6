// Whether the nodes of a job connect to each other: what doctor runs as one task of each.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// Listens at `port` on all addresses of this host. Fails with kPreflight and errno.
Result<boost::asio::ip::tcp::acceptor> ListenAt(boost::asio::io_context& io, int port);

/// What a task says of itself: its host's addresses but for loopback, with commas between them.
Result<std::string> OwnAddresses(const std::string& interface);

/// Listens at `port`, and connects to the same port of each other task. `addresses` has those of
/// all tasks by their numbers, as OwnAddresses says them, and `self` is this one's number. Returns
/// when all have been reached and have come, or after some seconds. Of many tasks each connects to
/// the next 64. Gives "reached", or "missed 1 3" with the numbers of those that were not reached.
/// Fails with kPreflight where it cannot listen.
Result<std::string> ReachOthers(int port, const std::vector<std::string>& addresses,
                                std::size_t self);

}  // namespace adaptive_train
