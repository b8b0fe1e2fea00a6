#include "core/plan_shares.h"

#include <fmt/format.h>

#include <algorithm>

namespace adaptive_train {

Shares ReplicaSharesOf(const Plan& plan) {
  Shares shares(static_cast<std::size_t>(plan.data));
  for (const RankPlan& rank : plan.ranks)
    shares[static_cast<std::size_t>(rank.replica)] = rank.samples;
  return shares;
}

std::string FixedShares(const Plan& plan) {
  if (plan.data == 1) return "there is one replica";
  if (plan.orders.AnyLayout()) return "train.reproducible = layout keeps shares";
  const std::string schedule = ScheduleNameOf(plan);
  if (schedule != "1f1b" || plan.Chunks() > 1)
    return fmt::format("shares cannot change with the {} schedule", schedule);
  if (plan.Pipeline() == 1) return "";
  const ShareRule rule = ShareRuleOf(plan);
  for (const RankPlan& rank : plan.ranks) {
    if (rank.micro_batch != rule.unit || rank.samples % rule.unit != 0)
      return "shares cannot change where stages have micro-batches of several sizes";
    if (rank.samples < rule.least)
      return "shares cannot change where a replica has fewer micro-batches than stages";
  }
  return "";
}

ShareRule ShareRuleOf(const Plan& plan) {
  if (plan.Pipeline() == 1) return {};
  const std::int64_t micro_batch = plan.ranks.front().micro_batch;
  return {micro_batch, micro_batch * plan.Pipeline()};
}

Result<Plan> WithShares(Plan plan, const Shares& shares) {
  if (const std::string why = FixedShares(plan); !why.empty()) return Fail(why);
  if (shares.size() != static_cast<std::size_t>(plan.data))
    return Fail(fmt::format("{} shares for {} replicas", shares.size(), plan.data));
  const ShareRule rule = ShareRuleOf(plan);
  Shares first{0};
  for (const std::int64_t share : shares) {
    if (share > plan.global_batch - first.back())
      return Fail(
          fmt::format("a share of {} sequences in a global batch of {}", share, plan.global_batch));
    if (share < rule.least || share % rule.unit != 0)
      return Fail(fmt::format("a share of {} sequences: at least {}, and a multiple of {}", share,
                              rule.least, rule.unit));
    first.push_back(first.back() + share);
  }
  if (first.back() != plan.global_batch)
    return Fail(fmt::format("shares add up to {} sequences, the global batch has {}", first.back(),
                            plan.global_batch));
  for (RankPlan& rank : plan.ranks) {
    const auto replica = static_cast<std::size_t>(rank.replica);
    rank.samples = shares[replica];
    rank.first_sample = first[replica];
  }
  return plan;
}

}  // namespace adaptive_train
