#include "runtime/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "runtime/comm/all_gather.h"
#include "runtime/train/collective.h"

namespace adaptive_train {

template <class T>
Optimizer<T>::Optimizer(kernels::Device<T>& device, const ParameterLayout& layout,
                        Communicator& communicator, const std::vector<GradientBucket>& buckets,
                        bool sharded)
    : device_(device),
      layout_(layout),
      communicator_(communicator),
      buckets_(buckets),
      sharded_(sharded) {
  if (!sharded) {
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
  if (sharded_) SumOverRanks(communicator_, sum);
  return sum[0];
}

template <class T>
void Optimizer<T>::Step(const AdamWSettings& settings, const OptimizerArenas<T>& arenas,
                        std::int64_t step, double lr, double gradient_scale) {
  if (!sharded_)
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
Request Optimizer<T>::Gather(const GradientBucket& bucket, const OptimizerArenas<T>& arenas) {
  std::vector<std::span<std::byte>> chunks;
  for (const GradientChunk& chunk : bucket.chunks) {
    if constexpr (std::is_same_v<T, float>) {
      chunks.push_back(
          std::as_writable_bytes(arenas.parameters.subspan(chunk.begin, chunk.size())));
    } else {
      chunks.push_back(std::as_writable_bytes(arenas.weights.subspan(chunk.begin, chunk.size())));
    }
  }
  return communicator_.Launch(std::make_shared<AllGather>(
      fmt::format("all-gather of parameters {} to {}", bucket.begin, bucket.end),
      communicator_.NextLane(Purpose::kParameter), std::move(chunks)));
}

template <class T>
void Optimizer<T>::Finish() {
  for (Request& gather : gathers_) Await(gather.Wait(CollectiveDeadline()));
  gathers_.clear();
}

template class Optimizer<float>;
template class Optimizer<kernels::BFloat16>;
template class Optimizer<kernels::Float16>;

}  // namespace adaptive_train
