#include "launcher/planner/layer_times.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace adaptive_train {
namespace {

/// Measurements of one layer name, ready for a weighted line.
struct Points {
  double weight = 0, x = 0, y_forward = 0, y_backward = 0, xx = 0, xy_forward = 0, xy_backward = 0;
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
    update += w * m.update_s;
  }

  void Scale(double factor) {
    for (double* seconds : {&y_forward, &xy_forward, &y_backward, &xy_backward, &update})
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
    found.seconds.push_back({p.Fit(p.y_forward, p.xy_forward), p.Fit(p.y_backward, p.xy_backward),
                             p.update / p.weight});
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
    seconds.push_back({{0, forward},
                       {0, 2 * forward},
                       kUpdateBytesPerParameter * static_cast<double>(layer.parameters) /
                           speed.copy_bytes_per_second});
  }
  return seconds;
}

}  // namespace adaptive_train
