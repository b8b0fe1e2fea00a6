// Who a client on another host is (db/session_offer.h).
#pragma once

#include <sys/types.h>

#include <string>

#include "core/result.h"
#include "db/session_offer.h"

namespace adaptive_train {

/// How this service is known to clients on other hosts.
struct ServiceName {
  std::string address;       // HOST:PORT, as their locations have it
  std::string munge_socket;  // empty: the host's own
};

struct Introduction {
  uid_t uid = 0;
  SessionOffer offer;
  std::string acceptance;  // a credential for the client
};

/// What the client's credential says, if munged vouches for it, its text is the offer of a session
/// with this service, and `nonce` is in it. Blocks as munge does; any thread. Errors: one line for
/// the client.
Result<Introduction> Introduce(const std::string& credential, const std::string& nonce,
                               const ServiceName& self);

}  // namespace adaptive_train
