// How long layers take on a kind of device: measured where they were, otherwise from its speed.
#pragma once

#include <string>
#include <vector>

#include "core/model_shape.h"
#include "core/profile.h"
#include "launcher/planner/problem.h"

namespace adaptive_train {

/// What is known of a device's speed without a measured layer.
struct DeviceSpeed {
  double product_flops = 0;          // FLOP/s of matrix products
  double copy_bytes_per_second = 0;  // read and written counted once
};

/// The seconds of every layer of `shape`: a line through the measurements of this device kind and
/// model key, weighted by their confidence; all blocks share one line. False where a layer has no
/// measurement; `seconds` is then not touched.
bool MeasuredLayers(const ModelShape& shape, const Profile& profile, const std::string& device_kind,
                    const std::string& model_key, std::vector<LayerSeconds>& seconds);

/// From FLOPs, at kEstimatedShare of the product speed; the optimizer moves 28 bytes a parameter.
std::vector<LayerSeconds> EstimatedLayers(const ModelShape& shape, const DeviceSpeed& speed);

/// Of a product's speed, by a whole layer: what the CPU engine reaches and good GPU code does not
/// exceed. An assumption until layers are measured.
inline constexpr double kEstimatedShare = 0.6;

}  // namespace adaptive_train
