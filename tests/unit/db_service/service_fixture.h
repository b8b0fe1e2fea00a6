// A running adaptive-traind for tests, and other users who ask it.
#pragma once

#include <gmock/gmock.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "core/file_limit.h"
#include "db/remote_store.h"
#include "tests/unit/db/store_fixture.h"

namespace adaptive_train {

inline constexpr uid_t kAnn = 61001, kBob = 61002;

/// Starts the program itself, which says by sd_notify(3) how it fares.
class ServiceTest : public StoreTest {
 protected:
  ServiceTest() {
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
    notified_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, NotifySocket().c_str(), sizeof address.sun_path - 1);
    if (::bind(notified_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      std::abort();
  }
  ~ServiceTest() override {
    if (service_ > 0) End(SIGKILL);
    ::close(notified_);
  }

  StoreLocation Service() const { return {folder_ / "socket", StoreLocation::Kind::kLocalService}; }

  /// Starts it and waits until it serves.
  void Start(const std::vector<std::string>& more = {}) {
    Spawn(more);
    ASSERT_EQ(NextState(), "READY=1");
  }

  void Spawn(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {ADAPTIVE_TRAIND};
    words.insert(words.end(), more.begin(), more.end());
    const auto unless_given = [&](const std::string& option, const std::filesystem::path& value) {
      if (std::find(more.begin(), more.end(), option) != more.end()) return;
      words.push_back(option);
      words.push_back(value.string());
    };
    if (!asks_slurm_) words.push_back("--ask-slurm=false");
    unless_given("--database", Location().path);
    unless_given("--socket", Service().path);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    service_ = ::fork();
    if (service_ != 0) return;
    ::setenv("NOTIFY_SOCKET", NotifySocket().c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  /// What the service says next of itself.
  std::string NextState() const {
    pollfd socket{notified_, POLLIN, 0};
    if (::poll(&socket, 1, 60'000) != 1) return "silent for 60 s";
    char text[256];
    const ssize_t got = ::recv(notified_, text, sizeof text, 0);
    return got < 0 ? std::strerror(errno) : std::string(text, static_cast<std::size_t>(got));
  }

  /// Sends the signal and waits for the end. Returns what waitpid says.
  int End(int signal) {
    ::kill(service_, signal);
    return AwaitEnd();
  }
  int AwaitEnd() {
    int status = -1;
    ::waitpid(service_, &status, 0);
    service_ = -1;
    return status;
  }

  RemoteStore Connected(const StoreOptions& options = {}) const {
    auto store = RemoteStore::Open(Service(), options);
    if (!store) throw std::runtime_error(store.error().message);
    return std::move(*store);
  }

  /// What `body` gives for another user.
  std::string As(uid_t uid, const std::function<std::string(RemoteStore&)>& body) const {
    return InChild([&]() -> std::string {
      if (::setgroups(0, nullptr) != 0 || ::setgid(uid) != 0 || ::setuid(uid) != 0)
        return "these tests are to be run by root: only root can be several users";
      auto store = RemoteStore::Open(Service());
      return store ? body(*store) : store.error().message;
    });
  }

  pid_t service_ = -1;
  bool asks_slurm_ = false;

 private:
  std::string NotifySocket() const { return folder_ / "notify"; }

  int notified_ = -1;
};

/// A port of 127.0.0.1 that is free now.
inline int FreePort() {
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(made, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::getsockname(made, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    std::abort();
  ::close(made);
  return ntohs(address.sin_port);
}

/// A connection that speaks for itself.
inline StoreConnection RawConnection(const StoreLocation& location) {
  auto connection =
      StoreConnection::Open(location, StoreConnection::Clock::now() + std::chrono::seconds(60));
  if (!connection) throw std::runtime_error(connection.error().message);
  return std::move(*connection);
}

/// The answer to a text, or the error.
inline std::string Said(StoreConnection& connection, const std::string& text) {
  const auto answer =
      connection.Exchange(text, StoreConnection::Clock::now() + std::chrono::seconds(60));
  return answer ? *answer : answer.error().message;
}

}  // namespace adaptive_train
