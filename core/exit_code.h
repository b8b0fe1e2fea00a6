// Exit codes of the adaptive-train command: a contract with job scripts.
#pragma once

namespace adaptive_train {

enum class ExitCode : int {
  kDone = 0,
  kUsage = 2,          // wrong command line or configuration
  kNoPlan = 3,         // no feasible plan for this cluster and model
  kPreflight = 4,      // a check before the first step failed: data, run folder, nodes
  kRankFailure = 5,    // a rank failed and the run did not recover
  kStore = 6,          // the profile store is unusable
  kRequeue = 75,       // state is saved, run the same command again (EX_TEMPFAIL)
  kInterrupted = 130,  // stopped by SIGINT after saving
  kTerminated = 143,   // stopped by SIGTERM after saving
};

constexpr int ToInt(ExitCode code) { return static_cast<int>(code); }

}  // namespace adaptive_train
