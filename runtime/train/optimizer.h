// The optimizer of one rank: of all parameters, or of the rank's shard of them.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/host_copy.h"
#include "runtime/checkpoint/checkpoint_arena.h"
#include "runtime/comm/group.h"
#include "runtime/exchange/gradient_buckets.h"
#include "runtime/train/adamw_groups.h"

namespace adaptive_train {

struct OptimizerSharding {
  bool sharded = false;
  bool int8 = false;  // weights are gathered as int8_weights.h packs them; not in float32
};

/// AdamW. Replicated, every rank makes every update. Sharded (ZeRO stage 1; Rajbhandari et al.,
/// 2020), a rank updates the chunks it owns and the new weights are gathered from their owners, so
/// that each keeps moments of its own chunks only: what is outside of them is not touched, and
/// memory that is not touched is not there. One thread.
template <class T>
class Optimizer {
 public:
  /// All must outlive this. `buckets` cut the arena as the gradients' exchange does.
  Optimizer(kernels::Device<T>& device, const ParameterLayout& layout, Group& group,
            const GradientBuckets& buckets, const OptimizerSharding& sharding);

  /// What this rank updates, ascending.
  const std::vector<ElementRange>& Owned() const { return owned_; }
  /// The same by the rule of the buckets, of a sharded one.
  ArenaShare Share() const { return {buckets_.rule(), buckets_.PlaceOf(group_.Rank())}; }

  /// Of the gradients of what this rank updates, less what a lower tensor rank has as well.
  double SquaredNorm(std::span<const float> gradients);
  /// The same, exact, as numbers to be summed over ranks (ExactSquares::Summands).
  std::vector<double> ExactSquaredNorm(std::span<const float> gradients);
  /// Update number `step` from 1, with gradients times `gradient_scale`. Sharded, it starts the
  /// gathering of what the next forward reads: the weights, or in float32 the parameters. Until
  /// they are there nobody may read those of other owners, nor call this again.
  void Step(const AdamWSettings& settings, const OptimizerArenas<T>& arenas, std::int64_t step,
            double lr, double gradient_scale);
  /// Makes the weights from the parameters at the start of a run, where those of other owners need
  /// not be there: sharded, they are gathered as after a Step, and this waits for them. All ranks
  /// call it. Throws FatalError.
  void MakeWeights(const OptimizerArenas<T>& arenas);
  /// Waits until the weights before element `end` of the arena are there, from whatever owner: a
  /// forward pass that asks layer by layer runs while later layers are on their way. Throws
  /// FatalError.
  void FinishUpTo(std::size_t end);
  /// All of them.
  void Finish() { FinishUpTo(static_cast<std::size_t>(layout_.size())); }

 private:
  /// Of one bucket.
  struct PendingGather {
    const GradientBucket* bucket = nullptr;
    std::vector<kernels::Buffer<std::byte>> packed = {};  // [ranks], of int8
    std::span<T> weights;                                 // the arena that these are for
    kernels::GatheredParts gathered = {};
    Request request = {};  // ends before what it writes to
  };

  PendingGather Gather(const GradientBucket& bucket, const OptimizerArenas<T>& arenas);

  kernels::Device<T>& device_;
  const ParameterLayout& layout_;
  Group& group_;
  const GradientBuckets& buckets_;
  const OptimizerSharding sharding_;
  std::vector<ElementRange> owned_;
  std::deque<PendingGather> gathers_;  // in the order of the arena
};

}  // namespace adaptive_train
