#include "db/store_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "db/in_time.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Between two attempts to connect to a service that has more to accept than it keeps.
constexpr milliseconds kConnectAgain{2};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};
using Addresses = std::vector<Address>;

Result<int> NewSocket(int family) {
  const int made = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return FailConnection("cannot make a socket");
  return made;
}

Result<int> ConnectLocally(const std::filesystem::path& path, StoreDeadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    return Fail(fmt::format("a socket's path has at most {} bytes", sizeof address.sun_path - 1),
                ExitCode::kStore);
  std::copy(path.native().begin(), path.native().end(), address.sun_path);
  const auto made = NewSocket(AF_UNIX);
  if (!made) return made;
  // unix(7): EAGAIN says that the other side's queue is full, and nothing tells when it is not.
  while (::connect(*made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const bool again = errno == EAGAIN || errno == EINTR;
    if (again && Clock::now() < deadline) {
      std::this_thread::sleep_for(kConnectAgain);
      continue;
    }
    const auto failed = again ? FailLate() : FailConnection("cannot connect");
    ::close(*made);
    return failed;
  }
  return made;
}

/// Asks name servers.
Result<Addresses> AddressesOf(const HostAndPort& place) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(place.host.c_str(), place.port.c_str(), &wanted, &found);
  if (error != 0)
    return Fail(fmt::format("no address is known of {}: {}", place.host, ::gai_strerror(error)),
                ExitCode::kStore);
  Addresses addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Address& address = addresses.emplace_back();
    address.size = one->ai_addrlen;
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return addresses;
}

Result<void> Connect(int socket, const Address& address, StoreDeadline deadline) {
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0)
    return {};
  if (errno != EINPROGRESS && errno != EINTR) return FailConnection("cannot connect");
  if (!AwaitSocket(socket, POLLOUT, deadline)) return FailLate();
  socklen_t size = sizeof errno;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &errno, &size);
  if (errno != 0) return FailConnection("cannot connect");
  return {};
}

Result<int> ConnectRemotely(const StoreLocation& location, StoreDeadline deadline) {
  const auto place = ParseHostAndPort(location.address);
  if (!place) return Fail(location.address + " is not HOST:PORT", ExitCode::kStore);
  const auto addresses =
      InTime<Result<Addresses>>(deadline, [place = *place] { return AddressesOf(place); });
  if (!addresses) return FailLate();
  if (!*addresses) return tl::unexpected(addresses->error());
  Result<int> last = Fail("no address is known of " + place->host, ExitCode::kStore);
  std::size_t left = (*addresses)->size();
  for (const Address& address : **addresses) {
    // One that nobody answers at leaves its share of the time to the others.
    const auto until = Clock::now() + (deadline - Clock::now()) / static_cast<int>(left--);
    const auto made = NewSocket(address.bytes.ss_family);
    if (!made) return made;
    const auto connected = Connect(*made, address, until);
    if (connected) {
      // Requests and answers take turns: none waits to be sent with the next.
      const int on = 1;
      ::setsockopt(*made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return made;
    }
    ::close(*made);
    last = tl::unexpected(connected.error());
  }
  return last;
}

}  // namespace

tl::unexpected<Error> FailConnection(const std::string& doing) {
  return Fail(fmt::format("{}: {}", doing, std::strerror(errno)), ExitCode::kStore, errno);
}

tl::unexpected<Error> FailLate() { return Fail("no answer in time", ExitCode::kStore); }

bool AwaitSocket(int descriptor, short events, StoreDeadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd socket{descriptor, events, 0};
    const int ready =
        ::poll(&socket, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
  }
}

Result<int> ConnectTo(const StoreLocation& location, StoreDeadline deadline) {
  return location.kind == StoreLocation::Kind::kRemoteService
             ? ConnectRemotely(location, deadline)
             : ConnectLocally(location.path, deadline);
}

}  // namespace adaptive_train
