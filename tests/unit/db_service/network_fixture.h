// A service at a port, with a munged of the test's own, and what a test says to it in place of a
// client.
#pragma once

#include <memory>

#include "db/munge.h"
#include "db/session_offer.h"
#include "db/store_socket.h"
#include "tests/unit/db_service/munged.h"
#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train {

inline StoreDeadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

/// What a test says for itself, in place of a client.
class RawSocket {
 public:
  explicit RawSocket(const StoreLocation& location) {
    const auto made = ConnectTo(location, Soon());
    if (!made) throw std::runtime_error(made.error().message);
    socket_ = *made;
  }
  explicit RawSocket(int accepted) : socket_(accepted) {}
  ~RawSocket() { ::close(socket_); }
  RawSocket(const RawSocket&) = delete;

  void Send(const std::string& text) { Write(FrameOf(text)); }
  void Write(const std::string& bytes) {
    if (::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) closed_ = true;
  }
  /// The next frame; "closed" where there is none.
  std::string Receive() {
    char header[kFrameHeaderBytes];
    if (!Fill(header, sizeof header)) return "closed";
    std::string text(FrameSize(header), '\0');
    return Fill(text.data(), text.size()) ? text : "closed";
  }

 private:
  bool Fill(char* bytes, std::size_t size) {
    while (size > 0) {
      if (!AwaitSocket(socket_, POLLIN, Soon())) return false;
      const ssize_t got = ::recv(socket_, bytes, size, 0);
      if (got <= 0) return false;
      bytes += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }

  int socket_ = -1;
  bool closed_ = false;
};

class NetworkTest : public ServiceTest {
 protected:
  NetworkTest() : munged_(folder_ / "munge"), port_(FreePort()) {}

  void StartTcp(std::vector<std::string> more = {}) {
    for (const std::string& word :
         {std::string("--tcp"), Remote().address, std::string("--tcp-listen"),
          std::string("127.0.0.1"), std::string("--munge-socket"), munged_.Socket()})
      more.push_back(word);
    Start(more);
  }

  StoreLocation Remote() const {
    StoreLocation location;
    location.kind = StoreLocation::Kind::kRemoteService;
    location.address = "127.0.0.1:" + std::to_string(port_);
    location.service = service_uid_;
    location.munge_socket = munged_.Socket();
    return location;
  }

  /// What `body` gives for another user, with a store by the network.
  std::string RemotelyAs(uid_t uid, const std::function<std::string(RemoteStore&)>& body) const {
    return InChild([&]() -> std::string {
      BecomeUser(uid);
      auto store = RemoteStore::Open(Remote());
      return store ? body(*store) : store.error().message;
    });
  }

  static void BecomeUser(uid_t uid) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(uid) != 0 || ::setuid(uid) != 0)
      throw std::runtime_error("these tests are to be run by root: only root can be several users");
  }

  Munged munged_;
  const int port_;
  const uid_t service_uid_ = ::geteuid();  // a child's is another
};

/// The names of the jobs that the store shows.
inline std::string JobsSeen(RemoteStore& store) {
  const auto rows = store.FindJobs(EveryJob());
  if (!rows) return rows.error().message;
  std::string names;
  for (const JobRow& row : *rows) names += row.job.name + " ";
  return names;
}

}  // namespace adaptive_train
