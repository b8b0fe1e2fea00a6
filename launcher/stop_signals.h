// Ctrl-C and its kin while a run is being prepared: held back, and looked for at points where it is
// safe to stop.
#pragma once

#include <signal.h>

#include <optional>

#include "core/result.h"

namespace adaptive_train {

/// Holds SIGINT, SIGTERM, SIGHUP and SIGUSR1 back in the calling thread until its end or Release,
/// so that none kills the launcher between two states. What is pending then is delivered.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals() { Release(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  void Release();

 private:
  sigset_t before_;
  bool held_ = true;
};

/// A signal that asks to stop and is held back; none if nobody has asked.
std::optional<int> PendingStopSignal();

/// The error that a stop before training ends with: 130 for SIGINT, otherwise 143.
Error StoppedBy(int signal);

}  // namespace adaptive_train
