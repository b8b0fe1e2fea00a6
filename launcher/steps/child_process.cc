#include "launcher/steps/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/file_io.h"
#include "core/running_clock.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr int kCannotExecute = 127;

/// exec's argument forms: pointers into strings that the caller keeps.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipes {
  int out[2] = {-1, -1};
  int err[2] = {-1, -1};
  void Close() {
    for (int fd : {out[0], out[1], err[0], err[1]}) {
      if (fd >= 0) ::close(fd);
    }
  }
};

/// Between fork and exec: async-signal-safe calls only.
[[noreturn]] void Execute(char* const* command, char* const* env, int out, int err, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotExecute);  // the launcher ended before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ, SIGCHLD}) ::signal(s, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::execvpe(command[0], command, env);
  const char* why = ::strerror(errno);
  [[maybe_unused]] ssize_t n = ::write(2, command[0], ::strlen(command[0]));
  n = ::write(2, ": ", 2);
  n = ::write(2, why, ::strlen(why));
  n = ::write(2, "\n", 1);
  ::_exit(kCannotExecute);
}

}  // namespace

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return fmt::format("killed by signal {} ({})", WTERMSIG(wait_status),
                       ::strsignal(WTERMSIG(wait_status)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

FailureKind KindOfEnd(int wait_status) {
  return WIFSIGNALED(wait_status) ? KindOfSignal(WTERMSIG(wait_status))
                                  : KindOfExit(WEXITSTATUS(wait_status));
}

Result<ChildProcess> ChildProcess::Start(const Options& options) {
  auto fail = [&] {
    return Fail(fmt::format("{}: cannot start: {}", options.command.front(), std::strerror(errno)),
                ExitCode::kRankFailure);
  };
  std::vector<std::string> command = options.command;
  std::vector<std::string> assignments;
  for (const auto& [name, value] :
       options.environment ? *options.environment : CurrentEnvironment()) {
    assignments.push_back(fmt::format("{}={}", name, value));
  }
  Pipes pipes;
  if (!options.output_file.empty()) {
    pipes.out[1] =
        ::open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (pipes.out[1] < 0)
      return Fail(fmt::format("{}: {}", options.output_file, std::strerror(errno)),
                  ExitCode::kPreflight);
    pipes.err[1] = ::fcntl(pipes.out[1], F_DUPFD_CLOEXEC, 0);
  } else if (::pipe2(pipes.out, O_CLOEXEC) != 0 || ::pipe2(pipes.err, O_CLOEXEC) != 0) {
    pipes.Close();
    return fail();
  }
  const auto argv = Pointers(command);
  const auto env = Pointers(assignments);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Execute(argv.data(), env.data(), pipes.out[1], pipes.err[1], parent);
  if (pid < 0) {
    pipes.Close();
    return fail();
  }
  ::setpgid(pid, pid);  // in both, so that Signal cannot come too early
  ::close(pipes.out[1]);
  ::close(pipes.err[1]);
  for (int fd : {pipes.out[0], pipes.err[0]}) {
    if (fd >= 0) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return ChildProcess(pid, pipes.out[0], pipes.err[0]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      status_(other.status_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    Reset();
    pid_ = std::exchange(other.pid_, -1);
    out_ = std::exchange(other.out_, -1);
    err_ = std::exchange(other.err_, -1);
    status_ = other.status_;
  }
  return *this;
}

ChildProcess::~ChildProcess() { Reset(); }

void ChildProcess::Reset() {
  if (pid_ > 0 && !status_) {
    Signal(SIGKILL);
    int ignored = 0;
    while (::waitpid(pid_, &ignored, 0) < 0 && errno == EINTR) {
    }
  }
  for (int fd : {out_, err_}) {
    if (fd >= 0) ::close(fd);
  }
  pid_ = out_ = err_ = -1;
}

std::optional<int> ChildProcess::Poll() {
  int status = 0;
  if (!status_ && pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

std::string ChildProcess::Drain(int fd) {
  std::string text;
  char block[65536];
  while (fd >= 0) {
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(block, static_cast<std::size_t>(n));
    if (text.size() >= (std::size_t{1} << 20)) break;  // the caller comes again
  }
  return text;
}

void ChildProcess::SignalAlone(int signal) {
  if (pid_ > 0 && !Poll()) ::kill(pid_, signal);
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0 && !Poll()) ::kill(-pid_, signal);
}

Result<Finished> RunCommand(const ChildProcess::Options& options,
                            std::chrono::milliseconds deadline, std::size_t output_limit) {
  auto child = ChildProcess::Start(options);
  if (!child) return tl::unexpected(child.error());
  const RunningClock::Watched clock;  // at each turn
  const auto until = RunningClock::now() + deadline;
  Finished finished;
  for (;;) {
    const auto status =
        child->Poll();  // before reading: what came before the end is then read below
    finished.output += child->ReadOutput();
    finished.errors += child->ReadErrors();
    const std::string name = options.command.front();
    if (finished.output.size() + finished.errors.size() > output_limit) {
      return Fail(fmt::format("{}: printed more than {} bytes; killed", name, output_limit),
                  ExitCode::kPreflight);
    }
    if (status) {
      finished.wait_status = *status;
      return finished;
    }
    if (const auto signal = PendingStopSignal()) return tl::unexpected(StoppedBy(*signal));
    if (RunningClock::now() > until) {
      return Fail(
          fmt::format("{}: did not end within {} s; killed{}{}", name, deadline.count() / 1000,
                      finished.errors.empty() ? "" : ": ", Printable(finished.errors)),
          ExitCode::kPreflight);
    }
    ::poll(nullptr, 0, 5);
  }
}

}  // namespace adaptive_train
