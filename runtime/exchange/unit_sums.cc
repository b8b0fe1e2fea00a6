#include "runtime/exchange/unit_sums.h"

#include <algorithm>
#include <cassert>

#include "kernels/allocation_failure.h"

namespace adaptive_train {
namespace {

/// Elements that pass through all their additions at a time: they stay in the processor's cache.
constexpr std::size_t kElementsAtOnce = std::size_t{1} << 16;

}  // namespace

template <class T>
UnitSums<T>::UnitSums(kernels::Device<T>& device, std::span<float> arena, const UnitRange& own,
                      std::int64_t units)
    : device_(device), arena_(arena), own_(own), units_(units) {
  assert(own.size() > 0);
  const std::int64_t copies = MostKept(own, units);
  for (std::int64_t i = 0; i < copies; ++i)
    kept_.push_back(kernels::AllocatedFor(
        "sums of units", [&] { return kernels::Buffer<float>(device, arena.size()); }));
}

template <class T>
void UnitSums<T>::Take(std::size_t begin, std::size_t end, std::int64_t unit) {
  assert(own_.begin <= unit && unit < own_.end && begin <= end && end <= arena_.size());
  const bool last = unit + 1 == own_.end;
  const std::size_t before = NodesOf({own_.begin, unit}, units_).size();
  // The unit and the sums from this one on become one sum.
  const std::size_t first = NodesOf({own_.begin, unit + 1}, units_).size() - 1;
  for (; begin < end; begin += std::min(kElementsAtOnce, end - begin)) {
    const std::size_t size = std::min(kElementsAtOnce, end - begin);
    const auto count = static_cast<std::int64_t>(size);
    float* const gradients = arena_.data() + begin;
    if (last) {
      for (std::size_t i = before; i-- > first;)
        device_.AddInto(count, kept_[i].data() + begin, gradients);
      continue;
    }
    if (first == before) {
      device_.CopyWithin(kept_[first].data() + begin, gradients, size * sizeof(float));
    } else {
      const float* sum = gradients;
      for (std::size_t i = before; i-- > first; sum = kept_[i].data() + begin)
        device_.AddInto(count, sum, kept_[i].data() + begin);
    }
    device_.Clear(gradients, size * sizeof(float));
  }
}

template <class T>
std::vector<std::span<float>> UnitSums<T>::Nodes() {
  std::vector<std::span<float>> nodes;
  const std::size_t others = NodesOf(own_, units_).size() - 1;
  for (std::size_t i = 0; i < others; ++i) nodes.push_back(kept_[i].span());
  nodes.push_back(arena_);
  return nodes;
}

template class UnitSums<float>;
template class UnitSums<kernels::BFloat16>;
template class UnitSums<kernels::Float16>;

}  // namespace adaptive_train
