// Runs a part of a test in a process of its own, which may take away rights, disks or itself.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <string>

namespace adaptive_train {

/// What `work` returned in the child, or how the child ended.
template <class Work>
std::string InChild(Work work) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::string outcome;
    try {
      outcome = work();
    } catch (const std::exception& error) {
      outcome = error.what();
    }
    const bool told = ::write(ends[1], outcome.data(), outcome.size()) >= 0;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string outcome;
  char block[4096];
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;)
    outcome.append(block, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? outcome : "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace adaptive_train
