#include "launcher/run/recovery.h"

#include <algorithm>
#include <utility>

namespace adaptive_train {

namespace {

/// The node of the process whose end was the failure, and which lives; empty if there is none.
std::string NodeOfEndedProcess(const RunOutcome& outcome) {
  const Diagnosis& failure = *outcome.failure;
  const bool silent =
      std::ranges::find(outcome.silent_nodes, failure.failure.host) != outcome.silent_nodes.end();
  return failure.hearsay || failure.failure.rank < 0 || silent ? "" : failure.failure.host;
}

/// What came from outside; a rank that ends by itself before it trains does so each time.
bool CameFromOutside(FailureKind kind) {
  return kind == FailureKind::kKilled || kind == FailureKind::kNodeSilent ||
         kind == FailureKind::kRankSilent;
}

}  // namespace

std::optional<Recovery::Loss> Recovery::After(const RunOutcome& outcome) {
  trained_ = trained_ || outcome.trained;
  const bool progress = outcome.last_step > farthest_;
  farthest_ = std::max(farthest_, outcome.last_step);
  if (!outcome.failure || outcome.failure->reported || outcome.stop_asked) return std::nullopt;
  if (!trained_ && !CameFromOutside(outcome.failure->failure.kind)) return std::nullopt;
  in_a_row_ = progress ? 1 : in_a_row_ + 1;
  if (in_a_row_ > settings_.attempts) return std::nullopt;
  ++count_;
  Loss loss;
  loss.nodes = outcome.silent_nodes;
  std::erase(loss.nodes, settings_.own_node);
  const std::string before = std::exchange(ended_on_, NodeOfEndedProcess(outcome));
  if (!progress && before == ended_on_) loss.doubtful = before;
  return loss;
}

FailureKind Recovery::KindOf(const Diagnosis& failure) const {
  const FailureKind kind = failure.failure.kind;
  const bool alive = kind == FailureKind::kNodeSilent && failure.failure.host == settings_.own_node;
  return alive ? FailureKind::kRankSilent : kind;
}

}  // namespace adaptive_train
