// How a rank finds its launcher among several addresses, with proofs of both sides.
#pragma once

#include <utility>  // Boost 1.74 uses std::exchange without it

#include <boost/asio.hpp>
#include <string>

#include "core/control_message.h"
#include "core/launch_settings.h"
#include "core/result.h"

namespace adaptive_train {

/// A connection whose two ends have proved that they know the token.
struct FoundLauncher {
  boost::asio::ip::tcp::socket socket;
  FrameReader reader;  // with what followed the welcome
  LaunchDeadlines deadlines;
};

/// Tries `addresses` ("10.0.0.1:4711,[fd00::1]:4711") in order, and skips any side that does not
/// prove to know `token`. If one did not answer, or closed the connection early, as a crowded
/// launcher does, all are tried again. `hello` gets a nonce and a proof. Runs `io`, which must not
/// be used elsewhere. Blocks for at most half a minute. Fails with kRankFailure in one line that
/// mentions each address.
Result<FoundLauncher> FindLauncher(boost::asio::io_context& io, const std::string& addresses,
                                   const std::string& token, Hello hello);

}  // namespace adaptive_train
