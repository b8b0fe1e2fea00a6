// The faults of `run --inject`: whether they are allowed, which have happened, and whom they have
// struck.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/injection.h"
#include "core/plan.h"
#include "launcher/run/run_folder.h"
#include "launcher/steps/diagnosis.h"

namespace adaptive_train {

/// An administrator who makes this file on a host forbids faults there.
inline constexpr char kForbidInjectionFile[] = "/etc/adaptive-train/forbid-injection";

/// Reads what was typed after --inject; empty text: none. Fails with kUsage on anything that is no
/// fault, without recovery.allow_injection, where a step is beyond the last, and where the host
/// forbids it.
Result<std::vector<Injection>> AllowedInjections(const std::string& typed, const Config& config);

/// Fails with kUsage where a fault is of a rank or node that the plan does not have.
Result<void> CheckInjections(const std::vector<Injection>& injections, const Plan& plan);

/// Keeps account of a run's faults. One thread.
class Injections {
 public:
  /// Those that the folder's file says have happened do not happen again.
  Injections(std::vector<Injection> asked, RunFolder& folder);

  /// Writes those that are due to the run folder for the ranks; without any, removes the file.
  /// Nobody has been struck then.
  Result<void> BeginRanks();
  /// A rank says that `fault` happens to it. True: it is due, and the first that says so.
  bool Happened(int rank, const std::string& fault);
  /// Whether a fault that was asked for explains this failure or slowness.
  bool Explain(const Diagnosis& failure) const;

 private:
  Result<void> Write() const;

  RunFolder& folder_;
  std::vector<RunInjection> injections_;
  std::map<int, Injection::Kind> struck_;  // ranks of the current plan
};

}  // namespace adaptive_train
