// Who asks adaptive-traind.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

struct Caller {
  uid_t uid = 0;
  std::string user;          // the login name here, or the number if there is none
  bool is_operator = false;  // reads what is private to others; writes as itself alone
  std::vector<std::string> accounts = {};  // whose jobs it coordinates, and so may read
};

/// Refuses the overflow uid: it stands for any user that a host's user namespace does not know.
Result<void> CheckKnown(uid_t uid);

/// The uid of the process that made the connection, from the kernel (SO_PEERCRED), if it is known.
Result<uid_t> PeerUid(int socket);

}  // namespace adaptive_train
