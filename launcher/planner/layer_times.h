// The time of layers on a kind of device: measured if possible, otherwise derived from its speed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model_shape.h"
#include "core/profile.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// A device's speed if no layer was measured.
struct DeviceSpeed {
  double product_flops = 0;          // FLOP/s of matrix products
  double copy_bytes_per_second = 0;  // a copied byte counts once
};

struct MeasuredTimes {
  std::vector<LayerSeconds> seconds;   // [layers]
  std::vector<std::string> elsewhere;  // "embedding", "block", "head": measured on other kinds only
};

/// The seconds of every layer of `shape`: lines through the measurements of this device kind and
/// model key, weighted by confidence. All blocks share one line. A device of a pipeline stage lacks
/// layers: these are taken from another kind, times the ratio of both kinds' seconds for a layer
/// that both have. None if that is not possible either.
std::optional<MeasuredTimes> MeasuredLayers(const ModelShape& shape, const Profile& profile,
                                            const std::string& device_kind,
                                            const std::string& model_key);

/// From FLOPs, at kEstimatedShare of the product speed; the optimizer moves 28 bytes per parameter.
std::vector<LayerSeconds> EstimatedLayers(const ModelShape& shape, const DeviceSpeed& speed);

/// The share of the product speed that a whole layer reaches. The CPU engine reaches it and good
/// GPU code does not exceed it. An assumption until layers are measured.
inline constexpr double kEstimatedShare = 0.6;

}  // namespace adaptive_train
