#include "launcher/simulator/stage_times.h"

#include <numeric>

namespace adaptive_train {

StageTimes::StageTimes(const PlanProblem& problem, const Layout& layout, int chunk, int replica)
    : problem_(problem),
      layout_(layout),
      stage_(chunk % layout.Stages()),
      replica_(replica),
      first_(layout.cut[static_cast<std::size_t>(chunk)]),
      end_(layout.cut[static_cast<std::size_t>(chunk) + 1]) {}

/// Ring all-reduces inside the node.
double StageTimes::SumSeconds(const RankSums& sums, double samples) const {
  const int device = layout_.devices[layout_.DeviceIndex(stage_, replica_, 0)];
  const int node = problem_.devices[static_cast<std::size_t>(device)].node;
  return sums.Seconds(layout_.tensor, problem_.links.At(node, node)).At(samples);
}

/// `time` returns the rank's seconds of a layer on a device of a kind with standing 1.
template <class LayerTime>
std::vector<double> StageTimes::OfSlowest(const Chance& chance, int action, LayerTime time) const {
  std::vector<double> slowest, layers;
  double longest = -1;
  for (int rank = 0; rank < layout_.tensor; ++rank) {
    const int index = layout_.devices[layout_.DeviceIndex(stage_, replica_, rank)];
    const ProblemDevice& device = problem_.devices[static_cast<std::size_t>(index)];
    const DeviceKind& kind = problem_.kinds[static_cast<std::size_t>(device.kind)];
    const double factor = chance.ComputeFactor(index, action) / device.standing;
    layers.clear();
    for (int l = first_; l < end_; ++l)
      layers.push_back(factor * time(kind.layers[static_cast<std::size_t>(l)], LayerAt(l)));
    const double sum = std::accumulate(layers.begin(), layers.end(), 0.0);
    if (sum <= longest) continue;
    longest = sum;
    slowest.swap(layers);
  }
  return slowest;
}

std::vector<double> StageTimes::Forward(double samples, const Chance& chance, int action) const {
  auto times = OfSlowest(chance, action, [&](const LayerSeconds& l, const ProblemLayer& layer) {
    return layer.PartOfWork(layout_.tensor) * l.forward.At(samples);
  });
  for (int l = first_; l < end_; ++l)
    times[static_cast<std::size_t>(l - first_)] +=
        SumSeconds(LayerAt(l).ForwardSums(layout_.tensor), samples);
  return times;
}

std::vector<double> StageTimes::Backward(ActionKind kind, double samples, const Chance& chance,
                                         int action) const {
  const auto recompute = static_cast<std::size_t>(layout_.recompute);
  const double again = problem_.recompute_share[recompute];
  auto times = OfSlowest(chance, action, [&](const LayerSeconds& l, const ProblemLayer& layer) {
    const double part = layer.PartOfWork(layout_.tensor);
    const double second = part * l.weight_gradients.At(samples);
    if (kind == ActionKind::kBackwardWeight) return second;
    const double both = part * (l.backward.At(samples) + again * l.forward.At(samples));
    return kind == ActionKind::kBackward ? both : both - second;
  });
  if (kind == ActionKind::kBackwardWeight) return times;
  for (int l = first_; l < end_; ++l)
    times[static_cast<std::size_t>(l - first_)] +=
        SumSeconds(LayerAt(l).BackwardSums(recompute, layout_.tensor), samples);
  return times;
}

double StageTimes::Update(const Chance& chance, int action) const {
  const auto times =
      OfSlowest(chance, action, [&](const LayerSeconds& l, const ProblemLayer& layer) {
        return layer.PartOfParameters(layout_.tensor) * l.update;
      });
  const double all = std::accumulate(times.begin(), times.end(), 0.0);
  return layout_.shard >= 1 ? all / layout_.data : all;
}

}  // namespace adaptive_train
