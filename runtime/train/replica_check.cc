#include "runtime/train/replica_check.h"

#include <fmt/format.h>

#include <cstddef>
#include <vector>

#include "runtime/comm/collective.h"
#include "runtime/fatal_error.h"

namespace adaptive_train {
namespace {

/// Combines hashes so that their order counts: 2^64 over the golden ratio.
constexpr std::uint64_t kHashFactor = 0x9e3779b97f4a7c15;

void ExpectSame(Group& group, const Plan& plan, std::uint64_t hash, std::int64_t step) {
  // Two halves per rank: each fits a double exactly, and only its owner adds to a place.
  const auto own = 2 * static_cast<std::size_t>(group.Rank());
  std::vector<double> halves(2 * static_cast<std::size_t>(group.Size()), 0.0);
  halves[own] = static_cast<double>(hash >> 32);
  halves[own + 1] = static_cast<double>(hash & 0xffff'ffff);
  SumOverRanks(group, halves);
  for (std::size_t member = 1; 2 * member < halves.size(); ++member) {
    if (halves[2 * member] == halves[0] && halves[2 * member + 1] == halves[1]) continue;
    const int rank = group.RankOf(static_cast<int>(member));
    throw FatalError(
        RankExit::kDiverged, "comparing replicas", rank,
        fmt::format("parameters of rank {} on {} differ from rank {}'s after step {}", rank,
                    plan.ranks[static_cast<std::size_t>(rank)].device.node, group.RankOf(0), step));
  }
}

}  // namespace

template <class T>
void CheckReplicas(Groups& groups, const Plan& plan, const ParameterLayout& layout,
                   kernels::Device<T>& device, std::span<const T> weights, std::int64_t step) {
  ExpectSame(groups.data, plan, device.Hash(weights.data(), weights.size_bytes()), step);
  if (groups.tensor.Size() == 1) return;
  std::uint64_t hash = 0;
  for (const ParameterRange& range : layout.ranges()) {
    if (range.split != TensorSplit::kNone) continue;
    const T* of_range = weights.data() + range.offset;
    hash = hash * kHashFactor +
           device.Hash(of_range, static_cast<std::size_t>(range.count) * sizeof(T));
  }
  ExpectSame(groups.tensor, plan, hash, step);
}

template void CheckReplicas(Groups&, const Plan&, const ParameterLayout&, kernels::Device<float>&,
                            std::span<const float>, std::int64_t);
template void CheckReplicas(Groups&, const Plan&, const ParameterLayout&,
                            kernels::Device<kernels::BFloat16>&, std::span<const kernels::BFloat16>,
                            std::int64_t);
template void CheckReplicas(Groups&, const Plan&, const ParameterLayout&,
                            kernels::Device<kernels::Float16>&, std::span<const kernels::Float16>,
                            std::int64_t);

}  // namespace adaptive_train
