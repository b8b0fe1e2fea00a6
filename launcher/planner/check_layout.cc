#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "launcher/planner/layout.h"

namespace adaptive_train {
namespace {

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

Result<void> CheckCut(const PlanProblem& problem, const Layout& layout) {
  const auto layers = static_cast<int>(problem.layers.size());
  if (layout.cut.size() < 2 || layout.cut.front() != 0 || layout.cut.back() != layers)
    return Fail(fmt::format("the stages' layers do not cover 0 to {}", layers));
  if (layout.interleave < 1 || layout.Chunks() % layout.interleave != 0)
    return Fail(fmt::format("{} chunks for stages of {}", layout.Chunks(), layout.interleave));
  for (int c = 0; c < layout.Chunks(); ++c)
    if (layout.cut[Index(c)] >= layout.cut[Index(c) + 1])
      return Fail(fmt::format("{} {} has no layer", layout.interleave > 1 ? "chunk" : "stage", c));
  if (layout.data < 1 || layout.tensor < 1 || layout.shard < 0 || layout.shard > 2 ||
      static_cast<std::size_t>(layout.recompute) >= kRecomputes)
    return Fail("numbers of replicas and tensor ranks are 1 or more, shard 0 to 2");
  if (layout.compressed.size() != problem.layers.size())
    return Fail(fmt::format("compression is decided for {} layers, there are {}",
                            layout.compressed.size(), layers));
  return {};
}

Result<void> CheckDevices(const PlanProblem& problem, const Layout& layout) {
  const std::size_t wanted = Index(layout.Stages()) * Index(layout.data) * Index(layout.tensor);
  if (wanted > problem.choices.most_ranks)
    return Fail(fmt::format("{} ranks; at most {} may be", wanted, problem.choices.most_ranks));
  if (layout.devices.size() != wanted)
    return Fail(fmt::format("{} devices are given for {} places", layout.devices.size(), wanted));
  std::vector<bool> used(problem.devices.size());
  for (const int device : layout.devices) {
    if (device < 0 || Index(device) >= used.size())
      return Fail(fmt::format("there is no device {}", device));
    if (used[Index(device)]) return Fail(fmt::format("device {} is used twice", device));
    used[Index(device)] = true;
  }
  for (std::size_t i = 0; i < layout.devices.size(); i += Index(layout.tensor))
    for (std::size_t t = 1; t < Index(layout.tensor); ++t)
      if (problem.devices[Index(layout.devices[i])].node !=
          problem.devices[Index(layout.devices[i + t])].node)
        return Fail(fmt::format("tensor ranks on devices {} and {} are on different nodes",
                                layout.devices[i], layout.devices[i + t]));
  return {};
}

Result<void> CheckShares(const PlanProblem& problem, const Layout& layout) {
  if (layout.shares.size() != Index(layout.data))
    return Fail(fmt::format("{} shares for {} replicas", layout.shares.size(), layout.data));
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < layout.shares.size(); ++d) {
    const ReplicaShare& share = layout.shares[d];
    if (share.samples < 1 || share.micro_batch < 1 || share.samples > problem.global_batch)
      return Fail(fmt::format("replica {} has {} samples in micro-batches of {}", d, share.samples,
                              share.micro_batch));
    sum += share.samples;
    if (!problem.InMicroBatches(layout.Stages(), share.micro_batch)) continue;
    if (share.micro_batch != layout.shares[0].micro_batch || share.samples % share.micro_batch != 0)
      return Fail(
          fmt::format("replica {}: {} samples are no whole micro-batches of {}, the replicas' size",
                      d, share.samples, layout.shares[0].micro_batch));
  }
  if (sum != problem.global_batch)
    return Fail(fmt::format("the replicas' samples add up to {}, the batch has {}", sum,
                            problem.global_batch));
  return {};
}

Result<void> CheckRings(const Layout& layout) {
  if (layout.rings.size() != Index(layout.Stages()))
    return Fail(fmt::format("{} rings for {} stages", layout.rings.size(), layout.Stages()));
  std::vector<int> all(Index(layout.data));
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t s = 0; s < layout.rings.size(); ++s) {
    std::vector<int> ring = layout.rings[s];
    std::sort(ring.begin(), ring.end());
    if (ring != all)
      return Fail(fmt::format("the ring of stage {} does not visit each replica once", s));
  }
  return {};
}

Result<void> CheckMemory(const PlanProblem& problem, const Layout& layout) {
  const std::vector<double> bytes = MemoryOf(problem, layout);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double limit = kMemoryShare * problem.devices[Index(layout.devices[i])].memory_bytes;
    if (bytes[i] > limit * (1 + 1e-12))
      return Fail(fmt::format("device {} needs {:.0f} bytes, {:.0f} may be used", layout.devices[i],
                              bytes[i], limit));
  }
  return {};
}

}  // namespace

Result<void> CheckLayout(const PlanProblem& problem, const Layout& layout) {
  if (auto cut = CheckCut(problem, layout); !cut) return cut;
  if (auto devices = CheckDevices(problem, layout); !devices) return devices;
  if (auto shares = CheckShares(problem, layout); !shares) return shares;
  if (auto rings = CheckRings(layout); !rings) return rings;
  return CheckMemory(problem, layout);
}

}  // namespace adaptive_train
