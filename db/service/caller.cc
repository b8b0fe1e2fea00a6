#include "db/service/caller.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace adaptive_train {
namespace {

/// user_namespaces(7): 65534 unless the administrator has changed it.
uid_t OverflowUid() {
  uid_t uid = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> uid;
  return uid;
}

}  // namespace

Result<void> CheckKnown(uid_t uid) {
  static const uid_t overflow = OverflowUid();
  if (uid != overflow) return {};
  return Fail(fmt::format("uid {} stands for users that this host does not know: connect as a "
                          "user of the host, not of a container with users of its own",
                          overflow),
              ExitCode::kStore);
}

Result<uid_t> PeerUid(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Fail(fmt::format("who connects is not known: {}", std::strerror(errno)),
                ExitCode::kStore);
  return CheckKnown(peer.uid).map([&] { return peer.uid; });
}

}  // namespace adaptive_train
