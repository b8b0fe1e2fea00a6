#include "launcher/stop_signals.h"

#include <fmt/format.h>

#include <cstring>

namespace adaptive_train {

HeldSignals::HeldSignals() {
  sigset_t held;
  ::sigemptyset(&held);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::sigaddset(&held, signal);
  ::pthread_sigmask(SIG_BLOCK, &held, &before_);
}

void HeldSignals::Release() {
  if (held_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  held_ = false;
}

std::optional<int> PendingStopSignal() {
  sigset_t blocked, pending;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  ::sigpending(&pending);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (::sigismember(&blocked, signal) == 1 && ::sigismember(&pending, signal) == 1) return signal;
  }
  return std::nullopt;
}

Error StoppedBy(int signal) {
  return {fmt::format("stopped by {} before training began; there was nothing to save",
                      ::strsignal(signal)),
          signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated};
}

}  // namespace adaptive_train
