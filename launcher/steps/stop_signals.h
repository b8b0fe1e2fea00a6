// Ctrl-C and its kin while a run is being prepared: held back, and looked for at points where it is
// safe to stop.
#pragma once

#include <signal.h>

#include <optional>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// The signals that stop a run or save it: SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless it is
/// ignored (nohup).
std::vector<int> RunSignals();

/// For a thread that computes: a signal delivered to it would be missed by the one that waits for it.
void LeaveSignalsToOthers();

/// Holds RunSignals back in the calling thread, so that none kills the launcher between two states.
/// Release delivers what is pending; the end of the object takes it away, as whoever held the
/// signals has acted on it.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  void Release();
  /// Holds them back again after Release.
  void Hold();

 private:
  sigset_t signals_;
  sigset_t before_;
  bool held_ = false;
};

/// A signal that asks to stop and is held back; none if nobody has asked.
std::optional<int> PendingStopSignal();

/// The error that a stop before training ends with: 130 for SIGINT, otherwise 143.
Error StoppedBy(int signal);

}  // namespace adaptive_train
