// Who asks adaptive-traind.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/result.h"

namespace adaptive_train {

struct Caller {
  uid_t uid = 0;
  std::string user;          // the login name here, or the number if there is none
  bool is_operator = false;  // reads what is private to others; writes as itself alone
};

/// The uid of the process that made the connection, from the kernel (SO_PEERCRED). Refuses the
/// overflow uid: it stands for any user that this host's user namespace does not know.
Result<uid_t> PeerUid(int socket);

}  // namespace adaptive_train
