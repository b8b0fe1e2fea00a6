// Sums the gradients of one stage's replicas in a simulated step.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "launcher/simulator/ring_exchange.h"
#include "launcher/simulator/simulator.h"

namespace adaptive_train {

/// The rings of the buckets, the closing agreement and, with a sharded optimizer, the gathering of
/// the updated parameters, for two replicas or more. One thread: the loop's. The object must not
/// move while the loop runs. All arguments must outlive it.
class StageExchange {
 public:
  struct Events {
    std::function<void(int replica)> summed;  // all buckets are
    std::function<void(int replica)> agreed;
    std::function<void(int replica)> gathered;
  };

  /// `members`: the first tensor rank of each replica.
  StageExchange(const EventLoop& loop, SimulatedLinks& links, const PlanProblem& problem,
                const Layout& layout, int stage, const SimulationOptions& options,
                std::span<const Place> members, Events events);

  /// The last backward of a layer in this step is over. Called from the last layer to the first.
  void LayerDone(int replica, int layer);
  void Agree(int replica);
  void Gather(int replica);

  /// When the replica's first bucket left; valid after `summed`.
  double Began(int replica) const { return replicas_[static_cast<std::size_t>(replica)].began; }

 private:
  struct Replica {
    int position = 0;         // in the ring
    std::size_t started = 0;  // buckets
    std::size_t summed = 0;
    std::size_t gathered = 0;
    double began = 0;
  };

  struct Bucket {
    int layer;
    double bytes;
  };

  double LayerBytes(int layer) const;
  void CutIntoBuckets(const std::vector<int>& layers, double most_bytes);
  void MakeRings(RingPart part, bool coarse);
  std::unique_ptr<RingExchange> MakeRing(double bytes, RingPart part, bool coarse,
                                         std::function<void(int replica)> done);
  void Count(int replica, std::size_t& count, const std::function<void(int)>& all);

  const EventLoop& loop_;
  SimulatedLinks& links_;
  const PlanProblem& problem_;
  const Layout& layout_;
  const int first_layer_;
  const Events events_;
  std::vector<int> order_;     // replicas around the ring
  std::vector<Place> places_;  // in this order
  std::vector<Replica> replicas_;
  std::vector<Bucket> buckets_;  // in the order in which they are ready
  std::vector<std::unique_ptr<RingExchange>> sums_, gathers_;  // index = bucket
  std::unique_ptr<RingExchange> agreement_;
};

}  // namespace adaptive_train
