#include "launcher/steps/stop_signals.h"

#include <fmt/format.h>

#include <cstring>
#include <ctime>

namespace adaptive_train {

std::vector<int> RunSignals() {
  std::vector<int> signals = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) signals.push_back(SIGHUP);
  return signals;
}

void LeaveSignalsToOthers() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : RunSignals()) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

HeldSignals::HeldSignals() {
  ::sigemptyset(&signals_);
  for (int signal : RunSignals()) ::sigaddset(&signals_, signal);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before_);
  Hold();
}

HeldSignals::~HeldSignals() {
  if (!held_) return;
  const timespec at_once{};
  while (::sigtimedwait(&signals_, nullptr, &at_once) > 0) {
  }
  Release();
}

void HeldSignals::Hold() {
  ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  held_ = true;
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
