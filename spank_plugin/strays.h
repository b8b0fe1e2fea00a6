// Finds and ends what a child process left behind, even in sessions of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>

namespace adaptive_train::plugin {

/// During its lifetime, orphans among this process's descendants become its children
/// (PR_SET_CHILD_SUBREAPER) instead of init's. Create it before the child is started. Only one
/// thread at a time may use it.
class Strays {
 public:
  Strays();
  ~Strays();
  Strays(const Strays&) = delete;
  Strays& operator=(const Strays&) = delete;

  /// Kills and reaps the children that appeared since the constructor and run as `user`, and their
  /// descendants, until there are none or `deadline` has passed.
  void End(uid_t user, std::chrono::steady_clock::time_point deadline);

 private:
  std::set<pid_t> before_;
  int was_subreaper_ = 0;
};

/// Waits for a child until `deadline` and reaps it. False if it still runs then.
bool Reap(pid_t child, std::chrono::steady_clock::time_point deadline);

}  // namespace adaptive_train::plugin
