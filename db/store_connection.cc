#include "db/store_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "db/store_message.h"

namespace adaptive_train {
namespace {

using Clock = StoreConnection::Clock;
using std::chrono::milliseconds;

/// Between two attempts to connect to a service that has more to accept than it keeps.
constexpr milliseconds kConnectAgain{2};

tl::unexpected<Error> FailConnection(const std::string& doing) {
  return Fail(fmt::format("{}: {}", doing, std::strerror(errno)), ExitCode::kStore, errno);
}

tl::unexpected<Error> FailLate() { return Fail("no answer in time", ExitCode::kStore); }

/// Waits until the socket is ready for `events`; false at the deadline.
bool AwaitSocket(int descriptor, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd socket{descriptor, events, 0};
    const int ready =
        ::poll(&socket, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
  }
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

Result<StoreConnection> StoreConnection::Open(const std::filesystem::path& path,
                                              Clock::time_point deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    return Fail(fmt::format("a socket's path has at most {} bytes", sizeof address.sun_path - 1),
                ExitCode::kStore);
  std::copy(path.native().begin(), path.native().end(), address.sun_path);
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return FailConnection("cannot make a socket");
  StoreConnection connection(descriptor);
  // unix(7): EAGAIN says that the other side's queue is full, and nothing tells when it is not.
  while (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (!WouldBlock() && errno != EINTR) return FailConnection("cannot connect");
    if (Clock::now() >= deadline) return FailLate();
    std::this_thread::sleep_for(kConnectAgain);
  }
  return connection;
}

StoreConnection::StoreConnection(StoreConnection&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

StoreConnection& StoreConnection::operator=(StoreConnection&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

StoreConnection::~StoreConnection() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> StoreConnection::Exchange(const std::string& text, Clock::time_point deadline) {
  if (text.size() > kMaxFrameBytes)
    return Fail(fmt::format("a record of {} MiB is longer than the {} that adaptive-traind takes",
                            text.size() >> 20, kMaxFrameBytes >> 20),
                ExitCode::kStore);
  // Who closes before he has read the request may have said why.
  if (auto sent = Send(FrameOf(text), deadline); !sent && sent.error().system_error != EPIPE)
    return tl::unexpected(sent.error());
  char header[kFrameHeaderBytes];
  if (auto got = Receive(header, sizeof header, deadline); !got) return tl::unexpected(got.error());
  const std::size_t size = FrameSize(header);
  if (size > kMaxFrameBytes)
    return Fail("what answers is no adaptive-traind: its frame is too long", ExitCode::kStore);
  std::string answer(size, '\0');
  if (auto got = Receive(answer.data(), size, deadline); !got) return tl::unexpected(got.error());
  return answer;
}

bool StoreConnection::Closed() const {
  char byte = 0;
  return ::recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !WouldBlock();
}

Result<void> StoreConnection::Send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (WouldBlock()) {
      if (!AwaitSocket(descriptor_, POLLOUT, deadline)) return FailLate();
    } else if (errno != EINTR) {
      return FailConnection("the connection is lost");
    }
  }
  return {};
}

Result<void> StoreConnection::Receive(char* bytes, std::size_t size, Clock::time_point deadline) {
  while (size > 0) {
    if (!AwaitSocket(descriptor_, POLLIN, deadline)) return FailLate();
    const ssize_t got = ::recv(descriptor_, bytes, size, 0);
    if (got == 0)
      return Fail("the connection is lost: adaptive-traind closed it", ExitCode::kStore);
    if (got < 0 && (WouldBlock() || errno == EINTR)) continue;
    if (got < 0) return FailConnection("the connection is lost");
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace adaptive_train
