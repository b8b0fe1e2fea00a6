// The optimizer of one rank: of all parameters, or of the rank's shard of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/comm/communicator.h"
#include "runtime/exchange/gradient_buckets.h"
#include "runtime/train/adamw_groups.h"

namespace adaptive_train {

/// AdamW. Replicated, every rank makes every update. Sharded (ZeRO stage 1; Rajbhandari et al.,
/// 2020), a rank updates the chunks it owns and the new weights are gathered from their owners, so
/// that each keeps moments of its own chunks only: what is outside of them is not touched, and
/// memory that is not touched is not there. One thread.
template <class T>
class Optimizer {
 public:
  /// All must outlive this. `buckets` cut the arena as the gradients' exchange does.
  Optimizer(kernels::Device<T>& device, const ParameterLayout& layout, Communicator& communicator,
            const std::vector<GradientBucket>& buckets, bool sharded);

  /// What this rank updates, ascending.
  const std::vector<ElementRange>& Owned() const { return owned_; }

  /// Of the whole gradient. Sharded, it blocks for a sum over ranks. Throws FatalError.
  double SquaredNorm(std::span<const float> gradients);
  /// Update number `step` from 1, with gradients times `gradient_scale`. Sharded, it starts the
  /// gathering of what the next forward reads: the weights, or in float32 the parameters.
  void Step(const AdamWSettings& settings, const OptimizerArenas<T>& arenas, std::int64_t step,
            double lr, double gradient_scale);
  /// Waits until the weights of all owners are there. Throws FatalError.
  void Finish();

 private:
  Request Gather(const GradientBucket& bucket, const OptimizerArenas<T>& arenas);

  kernels::Device<T>& device_;
  const ParameterLayout& layout_;
  Communicator& communicator_;
  const std::vector<GradientBucket>& buckets_;
  const bool sharded_;
  std::vector<ElementRange> owned_;
  std::vector<Request> gathers_;
};

}  // namespace adaptive_train
