// The addresses of this host by which ranks can reach the launcher.
#pragma once

#include <utility>  // Boost 1.74 uses std::exchange without it

#include <boost/asio/ip/address.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// Addresses of interfaces that are up, IPv4 and IPv6 but for link-local ones; those of `interface`
/// only, unless it is "auto". The one from which this host would send to `peer` (an IP address,
/// empty: not known) comes first, loopback last. Sends nothing. Fails with kPreflight where there
/// is none, naming the interfaces that there are.
Result<std::vector<boost::asio::ip::address>> LocalAddresses(const std::string& interface,
                                                             const std::string& peer);

}  // namespace adaptive_train
