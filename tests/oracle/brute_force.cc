#include "tests/oracle/brute_force.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/oracle/judge.h"
#include "tests/oracle/terms.h"

namespace adaptive_train::oracle {
namespace {

/// Calls `use` with all ways to write `total` as `parts` positive numbers.
template <typename Use>
void ForCompositions(std::int64_t total, int parts, std::vector<std::int64_t>& so_far, Use&& use) {
  if (parts == 1) {
    so_far.push_back(total);
    use(so_far);
    so_far.pop_back();
    return;
  }
  for (std::int64_t part = 1; part <= total - parts + 1; ++part) {
    so_far.push_back(part);
    ForCompositions(total - part, parts - 1, so_far, use);
    so_far.pop_back();
  }
}

class Trial {
 public:
  explicit Trial(const PlanProblem& problem) : problem_(problem) {}

  std::optional<Best> Run() {
    const auto devices = static_cast<int>(problem_.devices.size());
    const auto layers = static_cast<int>(problem_.layers.size());
    for (const int tensor : Allowed(problem_.choices.tensor, devices))
      for (const int stages : Allowed(problem_.choices.pipeline, layers))
        for (const int data : Allowed(problem_.choices.data, devices)) {
          if (stages * data * tensor > devices) continue;
          layout_.tensor = tensor;
          layout_.data = data;
          stages_ = stages;
          layout_.devices.clear();
          PlaceDevices();
        }
    return best_;
  }

 private:
  void PlaceDevices() {
    const auto slot = static_cast<int>(layout_.devices.size());
    if (slot == stages_ * layout_.data * layout_.tensor) {
      layout_.cut = {0};
      Cut();
      return;
    }
    for (int device = 0; device < static_cast<int>(problem_.devices.size()); ++device) {
      if (!MayTake(slot, device)) continue;
      layout_.devices.push_back(device);
      PlaceDevices();
      layout_.devices.pop_back();
    }
  }

  bool MayTake(int slot, int device) const {
    const std::vector<int>& taken = layout_.devices;
    if (std::find(taken.begin(), taken.end(), device) != taken.end()) return false;
    const int rank = slot % layout_.tensor, replica = slot / layout_.tensor % layout_.data;
    const int stage = slot / layout_.tensor / layout_.data;
    if (rank > 0) return taken.back() < device && NodeOf(taken.back()) == NodeOf(device);
    return stage > 0 || replica == 0 ||
           taken[static_cast<std::size_t>(slot - layout_.tensor)] < device;
  }

  int NodeOf(int device) const { return problem_.devices[static_cast<std::size_t>(device)].node; }

  void Cut() {
    const auto layers = static_cast<int>(problem_.layers.size());
    const int left = stages_ - layout_.Stages();
    if (left == 1) {
      layout_.cut.push_back(layers);
      FollowRules();
      ShareOut();
      layout_.cut.pop_back();
      return;
    }
    for (int end = layout_.cut.back() + 1; end <= layers - left + 1; ++end) {
      layout_.cut.push_back(end);
      Cut();
      layout_.cut.pop_back();
    }
  }

  /// Rings and compression follow from devices and cut.
  void FollowRules() {
    layout_.rings.clear();
    layout_.compressed.assign(problem_.layers.size(), false);
    for (int stage = 0; stage < stages_; ++stage) {
      layout_.rings.push_back(BestRing(stage));
      const RingLinks links = LinksOfRing(problem_, NodesOf(stage, layout_.rings.back()));
      for (int layer = layout_.cut[static_cast<std::size_t>(stage)];
           layer < layout_.cut[static_cast<std::size_t>(stage) + 1]; ++layer)
        layout_.compressed[static_cast<std::size_t>(layer)] =
            Compresses(problem_, layer, links, layout_.data);
    }
  }

  std::vector<int> NodesOf(int stage, const std::vector<int>& ring) const {
    std::vector<int> nodes;
    for (const int replica : ring)
      nodes.push_back(NodeOf(layout_.devices[layout_.DeviceIndex(stage, replica, 0)]));
    return nodes;
  }

  std::vector<int> BestRing(int stage) const {
    std::vector<int> ring(static_cast<std::size_t>(layout_.data));
    std::iota(ring.begin(), ring.end(), 0);
    std::vector<int> best = ring;
    RingLinks best_links = LinksOfRing(problem_, NodesOf(stage, ring));
    while (std::next_permutation(ring.begin() + 1, ring.end())) {
      const RingLinks links = LinksOfRing(problem_, NodesOf(stage, ring));
      if (links.bytes_per_second > best_links.bytes_per_second ||
          (links.bytes_per_second == best_links.bytes_per_second &&
           links.latency_s < best_links.latency_s)) {
        best = ring;
        best_links = links;
      }
    }
    return best;
  }

  void ShareOut() {
    for (const Recompute recompute : problem_.choices.recompute)
      for (const int shard : problem_.choices.shard) {
        layout_.recompute = recompute;
        layout_.shard = shard;
        if (stages_ == 1) {
          ShareSamples();
        } else {
          ShareMicroBatches();
        }
      }
  }

  void ShareMicroBatches() {
    for (const std::int64_t samples : PipelineMicroBatches(problem_))
      TryShares(problem_.global_batch / samples, [&](std::int64_t part, int) {
        return ReplicaShare{part * samples, samples};
      });
  }

  void ShareSamples() {
    for (const std::int64_t requested : problem_.choices.micro_batch)
      TryShares(problem_.global_batch,
                [&](std::int64_t part, int) { return SingleStageShare(part, requested); });
    if (!problem_.choices.micro_batch.empty()) return;
    std::vector<std::int64_t> largest;
    for (int replica = 0; replica < layout_.data; ++replica) {
      largest.push_back(LargestMicroBatch(problem_, LeastMemory(replica), layout_.data,
                                          layout_.tensor, layout_.shard, layout_.recompute));
      if (largest.back() == 0) return;
    }
    TryShares(problem_.global_batch, [&](std::int64_t part, int replica) {
      return SingleStageShare(part, largest[static_cast<std::size_t>(replica)]);
    });
  }

  double LeastMemory(int replica) const {
    double least = std::numeric_limits<double>::infinity();
    for (int rank = 0; rank < layout_.tensor; ++rank) {
      const int device = layout_.devices[layout_.DeviceIndex(0, replica, rank)];
      least = std::min(least, problem_.devices[static_cast<std::size_t>(device)].memory_bytes);
    }
    return least;
  }

  template <typename ShareOf>
  void TryShares(std::int64_t total, ShareOf&& share_of) {
    if (total < layout_.data) return;
    std::vector<std::int64_t> parts;
    ForCompositions(total, layout_.data, parts, [&](const std::vector<std::int64_t>& composed) {
      layout_.shares.clear();
      for (std::size_t replica = 0; replica < composed.size(); ++replica)
        layout_.shares.push_back(share_of(composed[replica], static_cast<int>(replica)));
      const Judgement judgement = Judge(problem_, layout_);
      if (judgement.fits && std::isfinite(judgement.step) &&
          (!best_ || judgement.step < best_->step))
        best_ = Best{judgement.step, layout_};
    });
  }

  const PlanProblem& problem_;
  int stages_ = 1;
  Layout layout_;
  std::optional<Best> best_;
};

}  // namespace

std::optional<Best> TryAll(const PlanProblem& problem) { return Trial(problem).Run(); }

}  // namespace adaptive_train::oracle
