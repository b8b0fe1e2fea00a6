// Exit codes of adaptive-train-worker, as shown by the launcher and the rank's log.
#pragma once

namespace adaptive_train {

enum class RankExit : int {
  kDone = 0,
  kSetup = 10,         // plan, configuration or data unreadable on this rank
  kWireup = 11,        // PMIx or the first connections failed or hung
  kTransport = 12,     // a peer was lost or a collective missed its deadline
  kLauncherLost = 13,  // nothing heard from the launcher: the rank ended itself
  kCheckpoint = 14,    // a checkpoint could not be written or read
  kDevice = 15,        // a kernel or the device's library failed
  kDiverged = 16,      // replicas hold different parameters
  kAborted = 17,       // the launcher ordered an immediate end
  kMemory = 18,        // a library ended the rank where it got no memory
};

constexpr int ToInt(RankExit code) { return static_cast<int>(code); }

}  // namespace adaptive_train
