// Other shares of the global batch for the replicas of a plan whose ranks train.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"

namespace adaptive_train {

/// Sequences per step; index = replica.
using Shares = std::vector<std::int64_t>;

Shares ReplicaSharesOf(const Plan& plan);

/// Why the ranks of a plan cannot take other shares without a restart, in words; empty if they can.
/// They can where the number of a rank's micro-batches changes neither its memory nor the order in
/// which gradients are summed.
std::string FixedShares(const Plan& plan);

/// What a share must be where shares can change: at least `least` sequences, in steps of `unit`.
struct ShareRule {
  std::int64_t unit = 1;
  std::int64_t least = 1;
};
/// One stage takes any share. With several, each replica keeps as many micro-batches as there are
/// stages: with fewer, less is in flight, and the ranks of a later launch would have no room for more.
ShareRule ShareRuleOf(const Plan& plan);

/// The plan with other shares: the same samples in the same order, divided otherwise, in micro-batches
/// as large as they are. Fails in one line if the shares do not fit (untrusted), or cannot change.
Result<Plan> WithShares(Plan plan, const Shares& shares);

}  // namespace adaptive_train
