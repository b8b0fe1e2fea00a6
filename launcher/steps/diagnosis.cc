#include "launcher/steps/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/rank_exit.h"

namespace adaptive_train {
namespace {

bool ShowsOwnFailure(const RankRecord& rank) {
  if (rank.goodbye) return false;
  if (rank.report) return !IsConsequence(*rank.report);
  return rank.order_closed != 0 || rank.order_silent != 0 || rank.order_ended != 0;
}

int FirstSign(const RankRecord& rank) {
  int first = 0;
  for (int order : {rank.order_reported, rank.order_closed, rank.order_silent, rank.order_ended}) {
    if (order != 0 && (first == 0 || order < first)) first = order;
  }
  return first;
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
  failure.within_plan = rank.peak_bytes > 0 && rank.peak_bytes <= rank.planned_bytes;
  if (rank.report) {
    failure = *rank.report;
    diagnosis.reported = true;
  } else if (!rank.ended_how.empty()) {
    failure.cause = "its process ended: " + rank.ended_how;
    failure.kind = KindOfOwnEnd(rank);
    diagnosis.by_signal = rank.ended_by_signal;
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
  int own = -1, consequence = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (FirstSign(ranks[i]) == 0 || ranks[i].goodbye) continue;
    int& best = ShowsOwnFailure(ranks[i]) ? own : consequence;
    if (best < 0 || FirstSign(ranks[i]) < FirstSign(ranks[static_cast<std::size_t>(best)]))
      best = static_cast<int>(i);
  }
  if (own >= 0) return FromOwnSigns(ranks, own);
  if (consequence < 0) return std::nullopt;
  Diagnosis diagnosis = FromOwnSigns(ranks, consequence);
  diagnosis.reported = false;
  diagnosis.hearsay = true;
  return diagnosis;
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
