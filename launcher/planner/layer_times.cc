#include "launcher/planner/layer_times.h"

#include <algorithm>
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

std::string MeasuredName(const ModelShape& shape, std::size_t layer) {
  if (layer == 0) return "embedding";
  return layer + 1 == shape.layers.size() ? "head" : "block";
}

}  // namespace

bool MeasuredLayers(const ModelShape& shape, const Profile& profile, const std::string& device_kind,
                    const std::string& model_key, std::vector<LayerSeconds>& seconds) {
  std::map<std::string, Points> points;
  for (const LayerMeasurement& m : profile.layers) {
    if (m.device_kind == device_kind && m.model == model_key) points[m.layer].Add(m);
  }
  for (const char* name : {"embedding", "block", "head"}) {
    if (!points.contains(name) || points[name].weight <= 0) return false;
  }
  seconds.clear();
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    const Points& p = points[MeasuredName(shape, i)];
    seconds.push_back({p.Fit(p.y_forward, p.xy_forward), p.Fit(p.y_backward, p.xy_backward),
                       p.update / p.weight});
  }
  return true;
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
