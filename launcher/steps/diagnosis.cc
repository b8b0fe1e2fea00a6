#include "launcher/steps/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rank_exit.h"

namespace adaptive_train {
namespace {

/// How well a rank's signs explain a failure; the last explains it best.
enum class Standing { kNothing, kLostPeer, kCrash, kCause };

int FirstSign(const RankRecord& rank) {
  int first = 0;
  for (int order : {rank.order_reported, rank.order_closed, rank.order_silent, rank.order_ended}) {
    if (order != 0 && (first == 0 || order < first)) first = order;
  }
  return first;
}

/// Its process ended by its own doing.
bool IsCrash(const RankRecord& rank) {
  return rank.order_ended != 0 && rank.ended_kind == FailureKind::kCrashed;
}

Standing StandingOf(const RankRecord& rank) {
  if (rank.goodbye || FirstSign(rank) == 0) return Standing::kNothing;
  if (rank.report) return IsConsequence(*rank.report) ? Standing::kLostPeer : Standing::kCause;
  return IsCrash(rank) ? Standing::kCrash : Standing::kCause;
}

/// Whether another rank on the same host was heard until now.
bool HostIsAlive(std::span<const RankRecord> ranks, const RankRecord& of) {
  return std::ranges::any_of(ranks, [&of](const RankRecord& other) {
    return &other != &of && other.host == of.host && other.hello && other.order_silent == 0;
  });
}

/// A process that never reached the launcher and was not killed did not start.
FailureKind KindOfOwnEnd(const RankRecord& rank) {
  return !rank.hello && rank.ended_kind == FailureKind::kCrashed ? FailureKind::kLaunch
                                                                 : rank.ended_kind;
}

Diagnosis FromOwnSigns(std::span<const RankRecord> ranks, int index) {
  const RankRecord& rank = ranks[static_cast<std::size_t>(index)];
  Diagnosis diagnosis;
  RankFailure& failure = diagnosis.failure;
  // An exit for lack of memory may be due to a limit of the process, which is its user's.
  failure.within_plan =
      rank.ended_by_signal && rank.peak_bytes > 0 && rank.peak_bytes <= rank.planned_bytes;
  if (rank.report) {
    failure = *rank.report;
    diagnosis.reported = true;
  } else if (!rank.ended_how.empty()) {
    failure.cause = "its process ended: " + rank.ended_how;
    failure.kind = KindOfOwnEnd(rank);
    if (failure.kind == FailureKind::kOutOfMemory && !rank.ended_by_signal)
      failure.cause += ", out of memory";
    diagnosis.final = rank.ended_by_signal && !IsCrash(rank);
  } else if (rank.order_closed != 0) {
    failure.cause = rank.closed_why;
  } else {
    failure.cause = fmt::format("no heartbeat for {} s: stopped, or its node or link is down",
                                static_cast<double>(rank.silence.count()) / 1000);
    failure.kind = HostIsAlive(ranks, rank) ? FailureKind::kRankSilent : FailureKind::kNodeSilent;
  }
  failure.rank = index;
  failure.host = rank.host;
  failure.step = std::max(failure.step, rank.step);
  const auto peer = static_cast<std::size_t>(failure.peer);
  if (failure.peer >= 0 && peer < ranks.size()) diagnosis.peer_host = ranks[peer].host;
  return diagnosis;
}

}  // namespace

bool IsConsequence(const RankFailure& report) {
  return report.exit_code == ToInt(RankExit::kTransport) ||
         report.exit_code == ToInt(RankExit::kWireup);
}

std::optional<Diagnosis> Diagnose(std::span<const RankRecord> ranks) {
  const auto explains_less = [](const RankRecord& a, const RankRecord& b) {
    const Standing of_a = StandingOf(a), of_b = StandingOf(b);
    return of_a == of_b ? FirstSign(a) > FirstSign(b) : of_a < of_b;
  };
  const auto best = std::ranges::max_element(ranks, explains_less);
  if (best == ranks.end() || StandingOf(*best) == Standing::kNothing) return std::nullopt;
  Diagnosis diagnosis = FromOwnSigns(ranks, static_cast<int>(best - ranks.begin()));
  if (StandingOf(*best) != Standing::kLostPeer) return diagnosis;
  diagnosis.reported = false;
  diagnosis.hearsay = true;
  return diagnosis;
}

bool FailedAfterAnUnwiredEnd(std::span<const RankRecord> ranks, int index) {
  const int first = FirstSign(ranks[static_cast<std::size_t>(index)]);
  const auto before = [first](int order) { return order != 0 && order < first; };
  return std::ranges::any_of(ranks, [&before](const RankRecord& rank) {
    return rank.report && rank.report->exit_code == ToInt(RankExit::kWireup) &&
           (before(rank.order_closed) || before(rank.order_ended));
  });
}

Blamed BlamedFor(const Diagnosis& diagnosis) {
  const RankFailure& failure = diagnosis.failure;
  const Blamed blamed = BlamedFor(failure.kind, failure.within_plan);
  const bool is_pair = !diagnosis.peer_host.empty() && diagnosis.peer_host != failure.host;
  return blamed == Blamed::kLink && !is_pair ? Blamed::kNobody : blamed;
}

std::string Describe(const Diagnosis& diagnosis) {
  const RankFailure& f = diagnosis.failure;
  if (f.rank < 0) return fmt::format("the {} failed: {}", f.operation, f.cause);
  std::string line = fmt::format("rank {} on {} failed", f.rank, f.host);
  if (f.step > 0) line += fmt::format(" after step {}", f.step);
  if (!f.operation.empty()) line += fmt::format(" in {}", f.operation);
  if (f.peer >= 0) line += fmt::format(" with rank {}", f.peer);
  return line + ": " + f.cause;
}

}  // namespace adaptive_train
