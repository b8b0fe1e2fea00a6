// Ranks as forked processes that exchange their addresses through their parent.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace adaptive_train {

/// What a rank does; true: it is content. What it throws ends it as a crash.
using Body = std::function<bool(Group&)>;

inline Deadline In(std::chrono::seconds time) { return std::chrono::steady_clock::now() + time; }

inline void WriteText(int fd, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  if (::write(fd, &size, sizeof size) != sizeof size ||
      ::write(fd, text.data(), size) != static_cast<ssize_t>(size))
    std::_Exit(90);
}

inline std::string ReadText(int fd) {
  std::uint32_t size = 0;
  if (::recv(fd, &size, sizeof size, MSG_WAITALL) != sizeof size) return "";
  std::string text(size, 0);
  return ::recv(fd, text.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size) ? text : "";
}

/// What a rank may take, less than CTest gives its test: under the thread sanitizer, on two
/// processors, a thousand exchanges of seven ranks take minutes.
constexpr unsigned kRankSeconds = 280;

/// One rank's process: addresses go to the parent and come back complete.
[[noreturn]] inline void RunRank(int rank, int size, int fd, const Body& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(kRankSeconds);
  auto communicator = Communicator::Open(rank, size);
  if (!communicator) std::_Exit(91);
  WriteText(fd, (*communicator)->Address());
  std::vector<std::string> addresses;
  for (int r = 0; r < size; ++r) addresses.push_back(ReadText(fd));
  (*communicator)->Connect(addresses);
  const bool good = body((*communicator)->World());
  communicator->reset();  // flushes: leaving at once could cut off what others have not received
  std::_Exit(good ? 0 : 1);
}

/// Processes of all ranks, started by the constructor, ended by the destructor at the latest.
class Ranks {
 public:
  Ranks(int size, const Body& body) {
    for (int rank = 0; rank < size; ++rank) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::abort();
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(pair[0]);
        for (int fd : fds_) ::close(fd);
        RunRank(rank, size, pair[1], body);
      }
      ::close(pair[1]);
      fds_.push_back(pair[0]);
      pids.push_back(pid);
    }
    std::vector<std::string> addresses;
    for (int fd : fds_) addresses.push_back(ReadText(fd));
    for (int fd : fds_) {
      for (const std::string& address : addresses) WriteText(fd, address);
    }
  }
  ~Ranks() {
    for (pid_t pid : pids) {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
    for (int fd : fds_) ::close(fd);
  }
  /// Waits for the end of a rank; gives its wait status.
  int Join(std::size_t rank) {
    int status = 0;
    ::waitpid(pids[rank], &status, 0);
    pids[rank] = -1;
    return status;
  }
  /// Waits for all; true if each body has given true.
  bool AllGood() {
    bool good = true;
    for (std::size_t rank = 0; rank < pids.size(); ++rank) good = Join(rank) == 0 && good;
    return good;
  }
  std::vector<pid_t> pids;

 private:
  std::vector<int> fds_;
};

}  // namespace adaptive_train
