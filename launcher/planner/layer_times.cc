#include "launcher/planner/layer_times.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace adaptive_train {
namespace {

/// Half of a block's backward where they were not measured apart.
double WeightGradients(const LayerMeasurement& m) {
  const bool apart = m.layer != "block" || m.weight_gradients_s > 0;
  return apart ? m.weight_gradients_s : m.backward_s / 2;
}

/// Measurements of one layer name, ready for a weighted line.
struct Points {
  double weight = 0, x = 0, y_forward = 0, y_backward = 0, xx = 0, xy_forward = 0, xy_backward = 0;
  double y_weights = 0, xy_weights = 0;
  double update = 0;

  void Add(const LayerMeasurement& m) {
    // The weight ignores age: only how often and how consistently the layer was measured counts.
    const double w = m.evidence.Confidence(m.evidence.measured_at);
    const auto at = static_cast<double>(m.micro_batch);
    weight += w;
    x += w * at;
    xx += w * at * at;
    y_forward += w * m.forward_s;
    xy_forward += w * at * m.forward_s;
    y_backward += w * m.backward_s;
    xy_backward += w * at * m.backward_s;
    y_weights += w * WeightGradients(m);
    xy_weights += w * at * WeightGradients(m);
    update += w * m.update_s;
  }

  void Scale(double factor) {
    for (double* seconds :
         {&y_forward, &xy_forward, &y_backward, &xy_backward, &y_weights, &xy_weights, &update})
      *seconds *= factor;
  }
  /// Forward and backward, of one sample.
  double PerSample() const { return (xy_forward + xy_backward) / xx; }

  /// Least squares; through the origin if there is only one micro-batch or the slope is negative.
  Line Fit(double y, double xy) const {
    const double spread = weight * xx - x * x;
    if (spread > 1e-9 * weight * xx) {
      const double slope = (weight * xy - x * y) / spread;
      const double fixed = (y - slope * x) / weight;
      if (slope > 0 && fixed >= 0) return {fixed, slope};
    }
    return {0, xy / xx};
  }
};

constexpr std::array<const char*, 3> kLayerNames = {"embedding", "block", "head"};
using PointsOfLayers = std::map<std::string, Points>;

bool Has(const PointsOfLayers& points, const std::string& name) {
  const auto found = points.find(name);
  return found != points.end() && found->second.weight > 0;
}

/// The layer's points on `other`, as they would be on the device of `own`.
std::optional<Points> Scaled(const PointsOfLayers& other, const PointsOfLayers& own,
                             const std::string& name) {
  if (!Has(other, name)) return std::nullopt;
  for (const char* common : {"block", "head", "embedding"}) {
    if (!Has(other, common) || !Has(own, common) || other.at(common).PerSample() <= 0) continue;
    Points points = other.at(name);
    points.Scale(own.at(common).PerSample() / other.at(common).PerSample());
    return points;
  }
  return std::nullopt;
}

/// A part of `whole`, whose line is fitted by itself.
Line AtMost(const Line& part, const Line& whole) {
  return {std::min(part.fixed, whole.fixed), std::min(part.per_sample, whole.per_sample)};
}

std::string MeasuredName(const ModelShape& shape, std::size_t layer) {
  if (layer == 0) return "embedding";
  return layer + 1 == shape.layers.size() ? "head" : "block";
}

}  // namespace

std::optional<MeasuredTimes> MeasuredLayers(const ModelShape& shape, const Profile& profile,
                                            const std::string& device_kind,
                                            const std::string& model_key) {
  std::map<std::string, PointsOfLayers> kinds;
  for (const LayerMeasurement& m : profile.layers)
    if (m.model == model_key) kinds[m.device_kind][m.layer].Add(m);
  PointsOfLayers points = kinds[device_kind];
  MeasuredTimes found;
  for (const char* name : kLayerNames) {
    if (Has(points, name)) continue;
    std::optional<Points> scaled;
    for (const auto& [kind, other] : kinds)
      if (!scaled) scaled = Scaled(other, kinds[device_kind], name);
    if (!scaled) return std::nullopt;
    points[name] = *scaled;
    found.elsewhere.emplace_back(name);
  }
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    const Points& p = points[MeasuredName(shape, i)];
    const Line backward = p.Fit(p.y_backward, p.xy_backward);
    found.seconds.push_back({p.Fit(p.y_forward, p.xy_forward), backward, p.update / p.weight,
                             AtMost(p.Fit(p.y_weights, p.xy_weights), backward)});
  }
  return found;
}

std::vector<LayerSeconds> EstimatedLayers(const ModelShape& shape, const DeviceSpeed& speed) {
  // AdamW reads and writes parameters, gradients and moments once: half of the bytes of a copy.
  constexpr double kUpdateBytesPerParameter = 14;
  const double flops = kEstimatedShare * speed.product_flops;
  const auto tokens = static_cast<double>(shape.dims.sequence);
  std::vector<LayerSeconds> seconds;
  for (const LayerShape& layer : shape.layers) {
    // The embedding has no product; its bytes move once in forward and twice in backward.
    const double moved = tokens * static_cast<double>(shape.dims.hidden) * 4;
    const double forward =
        tokens * layer.forward_flops_per_token / flops + moved / speed.copy_bytes_per_second;
    const bool block = &layer != &shape.layers.front() && &layer != &shape.layers.back();
    seconds.push_back({{0, forward},
                       {0, 2 * forward},
                       kUpdateBytesPerParameter * static_cast<double>(layer.parameters) /
                           speed.copy_bytes_per_second,
                       {0, block ? forward : 0}});
  }
  return seconds;
}

}  // namespace adaptive_train
