// A program that the launcher runs beside itself: started in a process group of its own, read,
// waited for, ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/failure_kind.h"
#include "core/result.h"

namespace adaptive_train {

using Environment = std::map<std::string, std::string>;

/// The calling process's environment.
Environment CurrentEnvironment();

/// How a process ended: "exit code 3", "killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);
/// The kind of failure that such an end is.
FailureKind KindOfEnd(int wait_status);

/// One child. Its process group is its own, so that a Ctrl-C meant for the launcher does not reach
/// it; it is killed when the launcher's process ends. One thread. The destructor kills the whole
/// group and reaps.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> command;        // command[0] is looked up on PATH
    std::optional<Environment> environment;  // none: the launcher's
    std::string output_file;  // stdout and stderr appended there; empty: read with Read*
  };

  static Result<ChildProcess> Start(const Options& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t Pid() const { return pid_; }
  /// Without blocking: the wait status once the child has ended.
  std::optional<int> Poll();
  /// What the child has written since the last call, without blocking.
  std::string ReadOutput() { return Drain(out_); }
  std::string ReadErrors() { return Drain(err_); }
  /// Signals the whole group, if the child has not been reaped.
  void Signal(int signal);
  /// Signals the child alone, not what it has started.
  void SignalAlone(int signal);

 private:
  ChildProcess(pid_t pid, int out, int err) : pid_(pid), out_(out), err_(err) {}
  static std::string Drain(int fd);
  void Reset();

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::optional<int> status_;
};

/// A finished short command.
struct Finished {
  int wait_status = 0;
  std::string output;
  std::string errors;
  bool Ok() const { return wait_status == 0; }
};

/// Runs a command to its end, for `deadline` at most and with at most `output_limit` bytes of
/// output; beyond either it is killed and an error names it. Ends early with StoppedBy when a
/// held-back signal asks to stop.
Result<Finished> RunCommand(const ChildProcess::Options& options,
                            std::chrono::milliseconds deadline,
                            std::size_t output_limit = 64u << 20);

}  // namespace adaptive_train
