// From what is known of every rank after something went wrong: which one failed first, and why.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "core/control_message.h"

namespace adaptive_train {

/// All that the launcher knows about one rank.
struct RankRecord {
  std::string host;  // planned
  bool hello = false;
  bool ready = false;
  bool wired = false;
  bool goodbye = false;
  std::int64_t step = 0;             // the last it reported
  std::optional<RankStatus> status;  // its answer to the last StatusNow
  // Signs of failure, with the order in which they came (1 = first, 0 = never).
  int order_reported = 0, order_closed = 0, order_silent = 0, order_ended = 0;
  std::optional<RankFailure> report;
  std::chrono::milliseconds silence{0};  // how long it had been silent when that was told
  std::string closed_why;
  std::string ended_how;
  bool ended_by_signal = false;
  FailureKind ended_kind = FailureKind::kUnknown;
  // Of memory, for the question whether the plan's figure was kept. 0: not known.
  std::int64_t planned_bytes = 0, peak_bytes = 0;
};

/// What is printed, stored and counted as the job's failure.
struct Diagnosis {
  RankFailure failure;    // with its kind
  std::string peer_host;  // of failure.peer; empty: none
  /// True: the rank has said itself what failed, and the same would come again.
  bool reported = false;
  /// True: the rank is only accused by a peer and has shown nothing itself; wait for its own sign
  /// if time allows.
  bool hearsay = false;
  /// True: a signal from outside ended its process. Nothing that comes later explains it better.
  bool final = false;
};

/// A report that another rank's failure can explain.
bool IsConsequence(const RankFailure& report);

/// Picks the root cause. A rank that was killed or fell silent without a word, or that reports a
/// failure of its own, comes before ranks that crashed, as UCX may abort where a peer dies; these
/// come before ranks that report the loss of a peer. None: no rank shows any sign of failure.
std::optional<Diagnosis> Diagnose(std::span<const RankRecord> ranks);

/// Whether the first sign of rank `index` came after a rank had ended that was not wired up: Slurm
/// kills a step of which a rank ends without PMIx_Finalize.
bool FailedAfterAnUnwiredEnd(std::span<const RankRecord> ranks, int index);

/// What later jobs hold against its node or link.
Blamed BlamedFor(const Diagnosis& diagnosis);

/// One line: which rank, where, when, what, why.
std::string Describe(const Diagnosis& diagnosis);

}  // namespace adaptive_train
