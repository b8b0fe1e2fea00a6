// Ranks as forked processes that exchange their addresses through their parent, and report failures
// to it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

/// For functions that return bool: returns false if the condition does not hold. The place, the
/// condition and the values that follow it go to stderr, and from a rank's process also to the
/// parent's failure. A condition may be a tl::expected, whose error is reported as well.
#define RANK_REQUIRE(condition, ...)                                           \
  do {                                                                         \
    if (const auto& required = (condition); !required)                         \
      return ::adaptive_train::Unmet(__FILE__, __LINE__, #condition,           \
                                     ::adaptive_train::WhyNot(required),       \
                                     #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)

namespace adaptive_train {

/// What a rank does; true on success. Otherwise, or if it throws, its parent gets the reason.
using Body = std::function<bool(Group&)>;

inline Deadline In(std::chrono::seconds time) { return RunningClock::now() + time; }

/// Part of the error of an operation that missed its deadline.
inline const std::string kMissed = "missed its deadline";

/// False: the other end is gone.
inline bool WriteText(int fd, const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  return ::send(fd, &size, sizeof size, MSG_NOSIGNAL) == sizeof size &&
         ::send(fd, text.data(), size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

inline std::string ReadText(int fd) {
  std::uint32_t size = 0;
  if (::recv(fd, &size, sizeof size, MSG_WAITALL) != sizeof size) return "";
  std::string text(size, 0);
  return ::recv(fd, text.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size) ? text : "";
}

/// In a rank's process: its number, and the pipe on which its parent reads reasons. Otherwise -1.
inline int own_rank = -1, reasons_fd = -1;

template <class T>
std::string WhyNot(const T& outcome) {
  if constexpr (requires { outcome.error().operation; }) {
    const CommError& error = outcome.error();
    return error.operation + ", rank " + std::to_string(error.peer) + ": " + error.cause;
  } else if constexpr (requires { outcome.error().message; }) {
    return outcome.error().message;
  } else {
    return "";
  }
}

/// Writes `reason` to stderr and to the parent.
inline void TellReason(const std::string& reason) {
  const std::string line = (own_rank < 0 ? "" : "rank " + std::to_string(own_rank) + ": ") + reason;
  std::fprintf(stderr, "%s\n", line.c_str());
  if (reasons_fd >= 0) WriteText(reasons_fd, line);
}

/// Reports the reason and returns false; for RANK_REQUIRE.
template <class... Values>
bool Unmet(const char* file, int line, const char* condition, const std::string& why,
           const char* names, const Values&... values) {
  std::ostringstream reason;
  reason.precision(9);
  reason << file << ':' << line << ": not " << condition;
  if (!why.empty()) reason << ": " << why;
  if constexpr (sizeof...(values) > 0) {
    reason << "; " << names << " =";
    ((reason << ' ' << values), ...);
  }
  TellReason(reason.str());
  return false;
}

/// The time limit of a rank, below CTest's limit for its test. Under the thread sanitizer, on two
/// processors, a thousand exchanges of seven ranks take minutes.
constexpr unsigned kRankSeconds = 280;

/// One rank's process: addresses go to the parent and come back complete.
[[noreturn]] inline void RunRank(int rank, int size, int fd, const Body& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(kRankSeconds);
  own_rank = rank;
  auto communicator = Communicator::Open(rank, size);
  if (!communicator) {
    TellReason("no communicator: " + WhyNot(communicator));
    std::_Exit(91);
  }
  WriteText(fd, (*communicator)->Address());
  std::vector<std::string> addresses;
  for (int r = 0; r < size; ++r) addresses.push_back(ReadText(fd));
  (*communicator)->Connect(addresses);
  reasons_fd = fd;
  bool good = false;
  try {
    good = body((*communicator)->World());
  } catch (const std::exception& error) {
    TellReason(std::string("threw ") + error.what());
  }
  communicator->reset();  // flushes: without it, others might miss data
  std::_Exit(good ? 0 : 1);
}

/// Processes of all ranks, started by the constructor and ended by the destructor at the latest.
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
    // How a rank that is gone has ended, Good says.
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
  /// Waits for the end of a rank; returns its wait status.
  int Join(std::size_t rank) {
    int status = 0;
    ::waitpid(pids[rank], &status, 0);
    pids[rank] = -1;
    return status;
  }
  /// Waits for the end of a rank; success if its body returned true, else the reason.
  testing::AssertionResult Good(std::size_t rank) {
    const int status = Join(rank);
    if (status == 0) return testing::AssertionSuccess();
    auto failure = testing::AssertionFailure() << "rank " << rank;
    if (WIFSIGNALED(status)) failure << " was killed by signal " << WTERMSIG(status);
    if (WIFEXITED(status)) failure << " ended with " << WEXITSTATUS(status);
    for (std::string reason; !(reason = ReadText(fds_[rank])).empty();) failure << '\n' << reason;
    return failure;
  }
  /// Waits for all ranks; success if each body returned true.
  testing::AssertionResult AllGood() {
    auto failure = testing::AssertionFailure();
    bool good = true;
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      if (const auto outcome = Good(rank); !outcome) {
        failure << outcome.message() << '\n';
        good = false;
      }
    }
    return good ? testing::AssertionSuccess() : failure;
  }
  std::vector<pid_t> pids;

 private:
  std::vector<int> fds_;
};

}  // namespace adaptive_train
