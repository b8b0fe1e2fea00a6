#include "launcher/run/replica_times.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace adaptive_train {

ReplicaTimes::ReplicaTimes(const Plan& plan, std::vector<PlaceSeconds> planned)
    : data_(plan.data),
      micro_batches_(static_cast<std::size_t>(plan.data)),
      planned_(std::move(planned)),
      slower_(planned_.size(), 1.0) {
  for (const RankPlan& rank : plan.ranks)
    micro_batches_[static_cast<std::size_t>(rank.replica)] = rank.micro_batch;
}

double ReplicaTimes::Of(std::size_t place, std::int64_t samples) const {
  const PlaceSeconds& planned = planned_[place];
  const auto batches = static_cast<double>(MicroBatches(ReplicaOf(place), samples));
  return slower_[place] *
         (batches * planned.micro_batch.fixed +
          static_cast<double>(samples) * planned.micro_batch.per_sample + planned.update);
}

void ReplicaTimes::Believe(std::size_t place, double times) {
  slower_[place] = std::max(1.0, slower_[place] * times);
}

/// The first micro-batch passes all stages, and each further one leaves the slowest stage after that
/// one's time. With one stage that is what its ranks compute.
double ReplicaTimes::OfReplica(int replica, std::int64_t samples) const {
  const auto batches = static_cast<double>(MicroBatches(replica, samples));
  const double size = static_cast<double>(samples) / batches;
  double trip = 0, period = 0, update = 0;
  for (auto place = static_cast<std::size_t>(replica); place < planned_.size();
       place += static_cast<std::size_t>(data_)) {
    const double both = slower_[place] * planned_[place].micro_batch.At(size);
    trip += both;
    period = std::max(period, both);
    update = std::max(update, slower_[place] * planned_[place].update);
  }
  return trip + (batches - 1) * period + update;
}

double ReplicaTimes::Longest(const Shares& shares) const {
  double longest = 0;
  for (int replica = 0; replica < data_; ++replica)
    longest = std::max(longest, OfReplica(replica, shares[static_cast<std::size_t>(replica)]));
  return longest;
}

/// Each further unit goes to whom it costs least: seconds grow with the share, so no other order has
/// a shorter longest one.
Shares ReplicaTimes::Best(const ShareRule& rule, std::int64_t global_batch) const {
  Shares shares(static_cast<std::size_t>(data_), rule.least);
  using Next = std::pair<double, int>;  // seconds with one more unit, and the replica
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  for (int replica = 0; replica < data_; ++replica)
    next.emplace(OfReplica(replica, rule.least + rule.unit), replica);
  for (std::int64_t left = global_batch - rule.least * data_; left > 0; left -= rule.unit) {
    const int replica = next.top().second;
    next.pop();
    std::int64_t& share = shares[static_cast<std::size_t>(replica)];
    share += rule.unit;
    next.emplace(OfReplica(replica, share + rule.unit), replica);
  }
  return shares;
}

}  // namespace adaptive_train
