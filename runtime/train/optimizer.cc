#include "runtime/train/optimizer.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/host_access.h"
#include "runtime/comm/collective.h"
#include "runtime/train/exact_squares.h"
#include "runtime/train/int8_weights.h"

namespace adaptive_train {

template <class T>
Optimizer<T>::Optimizer(kernels::Device<T>& device, const ParameterLayout& layout, Group& group,
                        const GradientBuckets& buckets, const OptimizerSharding& sharding)
    : device_(device), layout_(layout), group_(group), buckets_(buckets), sharding_(sharding) {
  if (!sharding.sharded) {
    owned_.push_back({0, layout.size()});
    return;
  }
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    const ElementRange own = buckets.RangeOf(*bucket, group.Rank());
    if (own.size() > 0) owned_.push_back(own);
  }
}

template <class T>
double Optimizer<T>::SquaredNorm(std::span<const float> gradients) {
  double sum = 0;
  for (const ElementRange& range : owned_) {
    for (const ElementRange& own : layout_.OwnElements(range.begin, range.end))
      sum += device_.SquaredNorm(own.size(), gradients.data() + own.begin);
  }
  return sum;
}

template <class T>
std::vector<double> Optimizer<T>::ExactSquaredNorm(std::span<const float> gradients) {
  ExactSquares squares;
  for (const ElementRange& range : owned_) {
    for (const ElementRange& own : layout_.OwnElements(range.begin, range.end))
      kernels::ReadOnHost(
          device_,
          gradients.subspan(static_cast<std::size_t>(own.begin),
                            static_cast<std::size_t>(own.size())),
          [&](std::size_t /*first*/, std::span<const float> piece) { squares.Add(piece); });
  }
  return squares.Summands();
}

template <class T>
void Optimizer<T>::Step(const AdamWSettings& settings, const OptimizerArenas<T>& arenas,
                        std::int64_t step, double lr, double gradient_scale) {
  if (!sharding_.sharded)
    return AdamWStep<T>(device_, layout_, settings, arenas, 0, layout_.size(), step, lr,
                        gradient_scale);
  // From the arena's beginning: the next forward begins there.
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
    const ElementRange own = buckets_.RangeOf(*bucket, group_.Rank());
    AdamWStep<T>(device_, layout_, settings, arenas, own.begin, own.end, step, lr, gradient_scale);
    gathers_.push_back(Gather(*bucket, arenas));
  }
}

template <class T>
typename Optimizer<T>::PendingGather Optimizer<T>::Gather(const GradientBucket& bucket,
                                                          const OptimizerArenas<T>& arenas) {
  PendingGather gather{.bucket = &bucket, .weights = arenas.weights};
  std::vector<std::span<std::byte>> chunks;
  for (int rank = 0; rank < buckets_.Ranks(); ++rank) {
    const ElementRange range = buckets_.RangeOf(bucket, rank);
    const auto begin = static_cast<std::size_t>(range.begin);
    const auto size = static_cast<std::size_t>(range.size());
    if constexpr (std::is_same_v<T, float>) {
      chunks.push_back(std::as_writable_bytes(arenas.parameters.subspan(begin, size)));
    } else if (sharding_.int8) {
      const GradientChunk chunk = buckets_.ChunkOf(bucket, rank);
      chunks.push_back(gather.packed.emplace_back(device_, PackedBytes<T>(chunk)).span());
      if (rank == group_.Rank())
        PackWeights<T>(device_, chunk, arenas.parameters, arenas.weights, chunks.back());
    } else {
      chunks.push_back(std::as_writable_bytes(arenas.weights.subspan(begin, size)));
    }
  }
  gather.gathered = {device_, chunks, group_.Rank()};
  gather.request = group_.AllGather(Purpose::kParameter, gather.gathered.Copies());
  return gather;
}

template <class T>
void Optimizer<T>::FinishUpTo(std::size_t end) {
  while (!gathers_.empty() && gathers_.front().bucket->begin < end) {
    PendingGather& gather = gathers_.front();
    Await(gather.request.Wait(CollectiveDeadline()));
    gather.gathered.Store();
    if constexpr (!std::is_same_v<T, float>) {
      // The owner unpacks its own as well: all compute with the same weights.
      for (std::size_t rank = 0; rank < gather.packed.size(); ++rank)
        UnpackWeights<T>(device_, buckets_.ChunkOf(*gather.bucket, static_cast<int>(rank)),
                         gather.packed[rank].span(), gather.weights);
    }
    gathers_.pop_front();
  }
}

template <class T>
void Optimizer<T>::MakeWeights(const OptimizerArenas<T>& arenas) {
  if constexpr (!std::is_same_v<T, float>) {
    for (const ElementRange& range : owned_)
      device_.Round({.count = range.end - range.begin,
                     .parameters = arenas.parameters.data() + range.begin,
                     .weights = arenas.weights.data() + range.begin});
  }
  if (!sharding_.sharded) return;
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket)
    gathers_.push_back(Gather(*bucket, arenas));
  Finish();
}

template class Optimizer<float>;
template class Optimizer<kernels::BFloat16>;
template class Optimizer<kernels::Float16>;

}  // namespace adaptive_train
