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

Diagnosis FromOwnSigns(int index, const RankRecord& rank) {
  Diagnosis diagnosis;
  if (rank.report) {
    diagnosis.failure = *rank.report;
    diagnosis.kind = "reported";
  } else if (!rank.ended_how.empty()) {
    diagnosis.failure.cause = "its process ended: " + rank.ended_how;
    diagnosis.kind = "killed";
    diagnosis.by_signal = rank.ended_by_signal;
  } else if (rank.order_closed != 0) {
    diagnosis.failure.cause = rank.closed_why;
    diagnosis.kind = "killed";
  } else {
    diagnosis.failure.cause =
        fmt::format("no heartbeat for {} s: stopped, or its node or link is down",
                    static_cast<double>(rank.silence.count()) / 1000);
    diagnosis.kind = "silent";
  }
  diagnosis.failure.rank = index;
  diagnosis.failure.host = rank.host;
  diagnosis.failure.step = std::max(diagnosis.failure.step, rank.step);
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
  if (own >= 0) return FromOwnSigns(own, ranks[static_cast<std::size_t>(own)]);
  if (consequence < 0) return std::nullopt;
  Diagnosis diagnosis = FromOwnSigns(consequence, ranks[static_cast<std::size_t>(consequence)]);
  diagnosis.kind = "lost";
  diagnosis.hearsay = true;
  return diagnosis;
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
