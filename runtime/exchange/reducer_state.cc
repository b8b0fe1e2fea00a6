#include "runtime/exchange/reducer_state.h"

#include <fmt/format.h>

#include "kernels/allocation_failure.h"

namespace adaptive_train {

template <class T>
ReducerState<T>::ReducerState(Group& data, kernels::Device<T>& computes,
                              const ParameterLayout& layout, std::span<float> gradient_arena,
                              const ReducerOptions& asked)
    : group(data),
      device(computes),
      gradients(gradient_arena),
      options(asked),
      groups(RankGroups::Of(asked.nodes, data.Rank(), data.Size())),
      buckets(layout, groups.all, asked.bucket_elements),
      residuals(kernels::AllocatedFor("residuals of compressed gradients",
                                      [&] {
                                        return kernels::Buffer<float>(
                                            computes, asked.feedback ? gradient_arena.size() : 0);
                                      })),
      selection(computes, gradient_arena, residuals.span()),
      kept(buckets.size()) {
  residuals.Clear();
}

template <class T>
std::span<float> ReducerState<T>::Together(const GradientBucket& bucket,
                                           const std::vector<int>& owners) const {
  const auto begin = static_cast<std::size_t>(buckets.RangeOf(bucket, owners.front()).begin);
  const auto end = static_cast<std::size_t>(buckets.RangeOf(bucket, owners.back()).end);
  return gradients.subspan(begin, end - begin);
}

template <class T>
SelectedChunk ReducerState<T>::Select(const GradientChunk& chunk, double density,
                                      kernels::ValueFormat format) {
  // Other ranks of the node may have something to add.
  SelectedChunk selected = adds_nothing && !NodeFirst()
                               ? selection.Nothing(chunk)
                               : selection.Select(chunk, density, policy.keep, format);
  counts.selected += selected.count;
  return selected;
}

template <class T>
void ReducerState<T>::ReleaseAround(const GradientBucket& bucket, std::size_t begin,
                                    std::size_t end) {
  const auto release = [&](std::size_t from, std::size_t to) {
    device.Release(gradients.data() + from, (to - from) * sizeof(float));
  };
  release(bucket.begin, begin);
  release(end, bucket.end);
}

template <class T>
void ReducerState<T>::PutOffNotFinite(const GradientBucket& bucket) {
  const GradientChunk own = OwnChunk(bucket);
  device.Clear(gradients.data() + own.begin, own.size() * sizeof(float));
  not_finite = true;
}

template <class T>
std::string ReducerState<T>::NameOf(const CollectiveLane& lane, std::size_t bucket) const {
  return fmt::format("exchange {} (gradient bucket {})", lane.sequence, bucket);
}

template struct ReducerState<float>;
template struct ReducerState<kernels::BFloat16>;
template struct ReducerState<kernels::Float16>;

}  // namespace adaptive_train
