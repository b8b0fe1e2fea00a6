#include "db/service/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = std::size_t{1} << 20;
/// Between two looks whether a program that has closed its output has ended.
constexpr std::chrono::milliseconds kLook{2};

/// A started program and the reading end of its output.
struct Running {
  pid_t process = -1;
  int output = -1;
};

Result<Running> Start(const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(std::strerror(errno), ExitCode::kStore);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  // Asio's sockets would stay open in it.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  Running running;
  running.output = ends[0];
  const int error =
      ::posix_spawnp(&running.process, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (error == 0) return running;
  ::close(ends[0]);
  return Fail(std::strerror(error), ExitCode::kStore);
}

/// All that it prints; none at the deadline, or where it is too much.
Result<std::string> ReadAll(int output, Clock::time_point deadline) {
  std::string text;
  char bytes[4096];
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd readable{output, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&readable, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Fail("no end in time", ExitCode::kStore);
    const ssize_t got = ::read(output, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(got));
    if (text.size() > kMostOutput) return Fail("more output than expected", ExitCode::kStore);
  }
}

/// Its end; it is killed at the deadline, with what it has started, or at once if `kill_now`.
int EndOf(pid_t process, Clock::time_point deadline, bool kill_now) {
  int status = 0;
  while (!kill_now && Clock::now() < deadline) {
    if (::waitpid(process, &status, WNOHANG) == process) return status;
    std::this_thread::sleep_for(kLook);
  }
  ::kill(-process, SIGKILL);
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Result<std::string> OutputOf(const std::vector<std::string>& words, Clock::time_point deadline) {
  const auto running = Start(words);
  if (!running) return FailIn(words.front(), running.error());
  auto text = ReadAll(running->output, deadline);
  ::close(running->output);
  const int status = EndOf(running->process, deadline, !text);
  if (!text) return FailIn(words.front(), text.error());
  if (status != 0)
    return Fail(fmt::format("{} failed: {}", words.front(),
                            WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                                              : fmt::format("signal {}", WTERMSIG(status))),
                ExitCode::kStore);
  return text;
}

}  // namespace adaptive_train
