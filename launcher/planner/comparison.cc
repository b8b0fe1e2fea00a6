#include "launcher/planner/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "launcher/planner/arrangement.h"
#include "launcher/planner/cuts.h"
#include "launcher/planner/layout.h"
#include "launcher/planner/seeds.h"
#include "launcher/planner/shapes.h"

namespace adaptive_train {
namespace {

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

bool Allows(const std::vector<int>& choices, int value) {
  return choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end();
}

void Offer(const PlanProblem& problem, Layout layout, Comparison& best) {
  const StepCost cost = CostOf(problem, layout);
  if (!std::isfinite(cost.step) || (best.cost && best.cost->step <= cost.step)) return;
  best.what = WordsOf(layout);
  best.layout = std::move(layout);
  best.cost = cost;
}

/// The same number of blocks per stage, up to one; the other layers stay at the ends. Cuts that are
/// asked for stay as they are.
std::vector<int> EvenBlocks(const PlanProblem& problem, int stages) {
  const auto& layers = problem.layers;
  const auto is_block = [](const ProblemLayer& layer) { return layer.block; };
  const auto first = std::find_if(layers.begin(), layers.end(), is_block) - layers.begin();
  const auto last = layers.rend() - std::find_if(layers.rbegin(), layers.rend(), is_block);
  std::vector<int> cut = FirstCuts(problem, stages);
  if (last - first < stages || !problem.choices.cut.empty()) return cut;
  for (int s = 1; s < stages; ++s)
    cut[Index(s)] = static_cast<int>(first + (last - first) * s / stages);
  return cut;
}

/// Equal shares up to one unit of `b` samples.
std::vector<ReplicaShare> EvenShares(std::int64_t batch, int data, std::int64_t b, bool whole) {
  std::vector<ReplicaShare> shares;
  const std::int64_t unit = whole ? b : 1, units = batch / unit;
  for (int d = 0; d < data; ++d) {
    const std::int64_t samples = unit * (units / data + (d < units % data ? 1 : 0));
    const std::int64_t batches = (samples + b - 1) / b;
    shares.push_back({samples, whole ? b : (samples + batches - 1) / batches});
  }
  return shares;
}

/// Devices in their order, except those left over on a node after its last whole group of tensor
/// ranks.
std::vector<int> InWholeGroups(const PlanProblem& problem, int tensor) {
  std::vector<int> devices;
  std::map<int, std::vector<int>> group;  // by node; not complete yet
  for (std::size_t i = 0; i < problem.devices.size(); ++i) {
    auto& open = group[problem.devices[i].node];
    open.push_back(static_cast<int>(i));
    if (open.size() < Index(tensor)) continue;
    devices.insert(devices.end(), open.begin(), open.end());
    open.clear();
  }
  return devices;
}

/// The factorisation's layout, or none if there are too few devices.
std::optional<Layout> EvenLayout(const PlanProblem& problem, const Shape& shape) {
  Layout layout;
  layout.data = shape.data;
  layout.tensor = shape.tensor;
  layout.recompute = shape.recompute;
  layout.shard = shape.shard;
  layout.cut = EvenBlocks(problem, shape.stages);
  layout.devices = InWholeGroups(problem, shape.tensor);
  if (layout.devices.size() < Index(shape.Groups() * shape.tensor)) return std::nullopt;
  layout.devices.resize(Index(shape.Groups() * shape.tensor));
  layout.shares = EvenShares(problem.global_batch, shape.data, shape.micro_batch,
                             problem.InMicroBatches(shape.stages, shape.micro_batch));
  std::vector<int> ring(Index(shape.data));
  std::iota(ring.begin(), ring.end(), 0);
  layout.rings.assign(Index(shape.stages), ring);
  layout.compressed.assign(problem.layers.size(), false);
  for (int s = 0; s < shape.stages; ++s) {
    const RingSpeed speed = SpeedOfStage(problem, layout, s);
    for (int l = layout.cut[Index(s)]; l < layout.cut[Index(s) + 1]; ++l)
      layout.compressed[Index(l)] = Compresses(problem, l, shape.data, speed);
  }
  return layout;
}

bool Fits(const PlanProblem& problem, const Layout& layout) {
  const auto bytes = MemoryOf(problem, layout);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > kMemoryShare * problem.devices[Index(layout.devices[i])].memory_bytes)
      return false;
  return true;
}

/// Whether to try this number of stages: on many devices only divisors of the blocks.
bool EvenStages(const PlanProblem& problem, int stages) {
  constexpr std::size_t kFew = 64;
  if (!Allows(problem.choices.pipeline, stages)) return false;
  const auto blocks = std::count_if(problem.layers.begin(), problem.layers.end(),
                                    [](const ProblemLayer& layer) { return layer.block; });
  return stages == 1 || !problem.choices.pipeline.empty() ||
         (problem.devices.size() <= kFew && problem.layers.size() <= kFew) || blocks % stages == 0;
}

/// Numbers of replicas up to `groups` for a shape without them, which has so many batches.
std::vector<int> EvenData(const PlanProblem& problem, std::int64_t batches, int groups, int stages,
                          int tensor) {
  const int most = static_cast<int>(
      std::min<std::int64_t>({groups, batches, problem.choices.MostReplicas(stages, tensor)}));
  std::set<int> data;
  for (int d : problem.choices.data)
    if (d <= most) data.insert(d);
  for (int d = most; problem.choices.data.empty() && d >= 1; d /= 2) data.insert(d);
  return {data.begin(), data.end()};
}

/// Micro-batches of an even plan, small ones first.
std::vector<std::int64_t> EvenMicroBatches(const PlanProblem& problem, int stages) {
  constexpr std::size_t kMost = 6;
  std::vector<std::int64_t> sizes;
  if (stages > 1) {
    sizes = PipelineMicroBatches(problem);
  } else if (!problem.choices.micro_batch.empty()) {
    sizes = problem.choices.micro_batch;
  } else {
    for (std::int64_t b = 1; b <= problem.global_batch; b *= 2) sizes.push_back(b);
  }
  if (stages > 1 && sizes.size() > kMost) sizes.resize(kMost);
  return sizes;
}

void OfferEven(const PlanProblem& problem, Shape shape, Comparison& best) {
  for (Recompute recompute : problem.choices.recompute) {
    for (int shard : problem.choices.shard) {
      shape.recompute = recompute;
      shape.shard = shard;
      auto layout = EvenLayout(problem, shape);
      if (!layout || !Fits(problem, *layout)) continue;
      Offer(problem, std::move(*layout), best);
      return;  // candidates with less recomputation and sharding come first
    }
  }
}

/// Offers the best cuts that fit, for given places.
void OfferPlaces(const PlanProblem& problem, SearchTables& tables, const std::vector<Group>& groups,
                 const Shape& shape, const std::vector<int>& places, Comparison& best) {
  Arrangement arrangement(tables, groups, shape);
  std::vector<int> cut = FirstCuts(problem, shape.stages);
  if (arrangement.Set({cut, places}) >= Arrangement::kImpossible) {
    cut = BestCuts(tables, groups, shape, places);
    if (cut.empty() || arrangement.Set({cut, places}) >= Arrangement::kImpossible) return;
  }
  Offer(problem, arrangement.ToLayout(), best);
}

/// Whether a replica's stages could hold the model on the largest devices. If not, smaller ones
/// need not be tried.
bool CouldFit(SearchTables& tables, const std::vector<Group>& groups, const Shape& shape) {
  double largest = 0;
  for (const Group& group : groups) largest = std::max(largest, group.limit);
  const RangeBytes bytes =
      tables.Sums(shape.tensor, shape.recompute).Bytes(shape, 0, tables.Layers());
  const std::int64_t b = shape.stages == 1 ? 1 : shape.micro_batch;
  return shape.stages * tables.Problem().CommonBytes(shape.recompute, b, shape.tensor) +
             bytes.kept + static_cast<double>(b) * bytes.activations <=
         shape.stages * largest * (1 + 1e-9);
}

/// Pipelines of `stages` groups, each next group the nearest free one to the last.
std::vector<int> NearestFirst(const PlanProblem& problem, const std::vector<Group>& groups,
                              const Shape& shape, double bytes) {
  std::vector<std::vector<int>> free(problem.links.Nodes());  // in reverse order
  for (std::size_t g = groups.size(); g-- > 0;)
    free[Index(groups[g].node)].push_back(static_cast<int>(g));
  std::vector<int> places(Index(shape.Groups()));
  for (int d = 0; d < shape.data; ++d) {
    int last = -1;
    for (int s = 0; s < shape.stages; ++s) {
      int nearest = -1;
      double least = 0;
      for (std::size_t n = 0; n < free.size(); ++n) {
        if (free[n].empty()) continue;
        const auto node = static_cast<int>(n);
        const double distance = BoundarySeconds(problem.links, last < 0 ? node : last, node, bytes);
        if (nearest < 0 || distance < least) least = distance, nearest = node;
      }
      last = nearest;
      places[Index(s * shape.data + d)] = free[Index(nearest)].back();
      free[Index(nearest)].pop_back();
    }
  }
  return places;
}

}  // namespace

Comparison EvenStatic(const PlanProblem& problem) {
  Comparison best{"even static", "", std::nullopt, std::nullopt};
  const auto devices = static_cast<int>(problem.devices.size());
  const auto layers = static_cast<int>(problem.layers.size());
  for (int tensor : TensorChoices(problem)) {
    for (int stages = 1; stages <= std::min(layers, devices / tensor); ++stages) {
      if (!EvenStages(problem, stages)) continue;
      for (std::int64_t b : EvenMicroBatches(problem, stages)) {
        const std::int64_t batches = problem.Shared(stages, b);
        for (int data : EvenData(problem, batches, devices / tensor / stages, stages, tensor))
          OfferEven(problem, {stages, data, tensor, b, Recompute::kNone, 0}, best);
      }
    }
  }
  if (!best.layout) best.what = "an even split over the devices in their order does not fit";
  return best;
}

Comparison DataParallelOnly(const PlanProblem& problem) {
  Comparison best{"data parallel only", "", std::nullopt, std::nullopt};
  const auto tensors = TensorChoices(problem);
  if (!Allows(problem.choices.pipeline, 1) || !Allows(tensors, 1)) {
    best.what = "the request asks for stages or tensor ranks";
    return best;
  }
  SearchTables tables(problem);
  const auto groups = MakeGroups(tables, 1);
  const auto orders = OrdersOf(tables, groups);
  auto sizes = problem.choices.micro_batch;
  if (sizes.empty()) sizes.push_back(0);
  const std::int64_t shared = problem.Shared(1, sizes.front());
  for (int data : EvenData(problem, shared, static_cast<int>(groups.size()), 1, 1))
    for (Recompute recompute : problem.choices.recompute)
      for (int shard : problem.choices.shard)
        for (std::int64_t b : sizes)
          for (const auto* order : {&orders.by_speed, &orders.by_memory})
            OfferPlaces(problem, tables, groups, {1, data, 1, b, recompute, shard},
                        {order->begin(), order->begin() + data}, best);
  if (!best.layout) best.what = "the whole model does not fit the devices";
  return best;
}

Comparison GreedyColocation(const PlanProblem& problem) {
  Comparison best{"greedy co-location", "", std::nullopt, std::nullopt};
  SearchTables tables(problem);
  const int tensor = TensorChoices(problem).front();
  const auto groups = MakeGroups(tables, tensor);
  const auto most = std::min(tables.Layers(), static_cast<int>(groups.size()));
  for (int stages = 1; stages <= most && !best.layout; ++stages) {
    if (!Allows(problem.choices.pipeline, stages)) continue;
    auto sizes = EvenMicroBatches(problem, stages);
    if (stages == 1 && problem.choices.micro_batch.empty()) sizes = {0};
    for (std::int64_t b : sizes) {
      const std::int64_t batches = problem.Shared(stages, b);
      const auto data =
          EvenData(problem, batches, static_cast<int>(groups.size()) / stages, stages, tensor);
      if (data.empty()) continue;
      std::vector<Shape> shapes;
      for (Recompute recompute : problem.choices.recompute)
        for (int shard : problem.choices.shard)
          if (const Shape shape{stages, data.back(), tensor, b, recompute, shard};
              CouldFit(tables, groups, shape))
            shapes.push_back(shape);
      if (shapes.empty()) continue;
      const double bytes =
          static_cast<double>(std::max<std::int64_t>(b, 1)) * problem.layers.front().boundary_bytes;
      const auto places = NearestFirst(problem, groups, shapes.front(), bytes);
      for (const Shape& shape : shapes) OfferPlaces(problem, tables, groups, shape, places, best);
    }
  }
  if (!best.layout) best.what = "no chain of near devices fits the model";
  return best;
}

}  // namespace adaptive_train
