#include "runtime/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "runtime/comm/all_gather.h"
#include "runtime/train/collective.h"
#include "runtime/train/int8_weights.h"

namespace adaptive_train {

template <class T>
Optimizer<T>::Optimizer(kernels::Device<T>& device, const ParameterLayout& layout,
                        Communicator& communicator, const std::vector<GradientBucket>& buckets,
                        const OptimizerSharding& sharding)
    : device_(device),
      layout_(layout),
      communicator_(communicator),
      buckets_(buckets),
      sharding_(sharding) {
  if (!sharding.sharded) {
    owned_.push_back({0, layout.size()});
    return;
  }
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    const GradientChunk& own = bucket->chunks[static_cast<std::size_t>(communicator.Rank())];
    if (own.size() > 0)
      owned_.push_back({static_cast<std::int64_t>(own.begin), static_cast<std::int64_t>(own.end)});
  }
}

template <class T>
double Optimizer<T>::SquaredNorm(std::span<const float> gradients) {
  double sum[1] = {0};
  for (const ElementRange& range : owned_)
    sum[0] += device_.SquaredNorm(range.end - range.begin, gradients.data() + range.begin);
  if (sharding_.sharded) SumOverRanks(communicator_, sum);
  return sum[0];
}

template <class T>
void Optimizer<T>::Step(const AdamWSettings& settings, const OptimizerArenas<T>& arenas,
                        std::int64_t step, double lr, double gradient_scale) {
  if (!sharding_.sharded)
    return AdamWStep<T>(device_, layout_, settings, arenas, 0, layout_.size(), step, lr,
                        gradient_scale);
  // From the arena's beginning: the next forward begins there.
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
    const GradientChunk& own = bucket->chunks[static_cast<std::size_t>(communicator_.Rank())];
    AdamWStep<T>(device_, layout_, settings, arenas, static_cast<std::int64_t>(own.begin),
                 static_cast<std::int64_t>(own.end), step, lr, gradient_scale);
    gathers_.push_back(Gather(*bucket, arenas));
  }
}

template <class T>
typename Optimizer<T>::PendingGather Optimizer<T>::Gather(const GradientBucket& bucket,
                                                          const OptimizerArenas<T>& arenas) {
  PendingGather gather{&bucket, {}, {}, arenas.weights};
  std::vector<std::span<std::byte>> chunks;
  if constexpr (std::is_same_v<T, float>) {
    for (const GradientChunk& chunk : bucket.chunks)
      chunks.push_back(
          std::as_writable_bytes(arenas.parameters.subspan(chunk.begin, chunk.size())));
  } else if (sharding_.int8) {
    for (const GradientChunk& chunk : bucket.chunks)
      chunks.emplace_back(gather.packed.emplace_back(PackedBytes<T>(chunk)));
    const auto own = static_cast<std::size_t>(communicator_.Rank());
    PackWeights<T>(bucket.chunks[own], arenas.parameters, arenas.weights, chunks[own]);
  } else {
    for (const GradientChunk& chunk : bucket.chunks)
      chunks.push_back(std::as_writable_bytes(arenas.weights.subspan(chunk.begin, chunk.size())));
  }
  gather.request = Launch(bucket, std::move(chunks));
  return gather;
}

template <class T>
Request Optimizer<T>::Launch(const GradientBucket& bucket,
                             std::vector<std::span<std::byte>> chunks) {
  return communicator_.Launch(std::make_shared<AllGather>(
      fmt::format("all-gather of parameters {} to {}", bucket.begin, bucket.end),
      communicator_.NextLane(Purpose::kParameter), std::move(chunks), communicator_.Ways().nodes));
}

template <class T>
void Optimizer<T>::FinishUpTo(std::size_t end) {
  while (!gathers_.empty() && gathers_.front().bucket->begin < end) {
    PendingGather& gather = gathers_.front();
    Await(gather.request.Wait(CollectiveDeadline()));
    if constexpr (!std::is_same_v<T, float>) {
      // The owner unpacks its own as well: all compute with the same weights.
      for (std::size_t rank = 0; rank < gather.packed.size(); ++rank)
        UnpackWeights<T>(gather.bucket->chunks[rank], gather.packed[rank], gather.weights);
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
