// How long the replicas of a plan should compute, and how to share out the batch by that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan_shares.h"
#include "launcher/planner/layout.h"

namespace adaptive_train {

/// The planner's figures, corrected by what ranks have shown. A place is a stage of a replica: stage
/// x replicas + replica. No I/O; one thread.
class ReplicaTimes {
 public:
  /// index = place; the plan has at least one replica.
  ReplicaTimes(const Plan& plan, std::vector<PlaceSeconds> planned);

  std::size_t Places() const { return planned_.size(); }
  int ReplicaOf(std::size_t place) const { return static_cast<int>(place) % data_; }
  /// Seconds that the place computes in a step of so many sequences.
  double Of(std::size_t place, std::int64_t samples) const;
  /// How much longer than planned the place is expected to compute, 1 or more.
  double Slower(std::size_t place) const { return slower_[place]; }
  /// Expects `times` as long as so far from now on, but never less than planned.
  void Believe(std::size_t place, double times);

  /// Shares with which the last replica has computed soonest. The global batch must suffice for the
  /// least shares of the rule.
  Shares Best(const ShareRule& rule, std::int64_t global_batch) const;
  /// Seconds in which the last replica has computed, all stages of it.
  double Longest(const Shares& shares) const;

 private:
  double OfReplica(int replica, std::int64_t samples) const;
  std::int64_t MicroBatches(int replica, std::int64_t samples) const {
    const std::int64_t size = micro_batches_[static_cast<std::size_t>(replica)];
    return (samples + size - 1) / size;
  }

  const int data_;
  std::vector<std::int64_t> micro_batches_;  // sequences of one; index = replica
  const std::vector<PlaceSeconds> planned_;
  std::vector<double> slower_;
};

}  // namespace adaptive_train
