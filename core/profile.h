// Measurements of links, devices and layers, from this job or earlier ones, with their confidence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// How reliable a figure is. Figures are running means over jobs.
struct Evidence {
  std::int64_t count = 0;  // measurements in the mean, each at a different time
  double spread = 0;       // relative standard deviation of one, between and within measurements
  double measured_at = 0;  // the last one, UTC seconds since 1970

  /// From 0 to 1: rises with the count, falls with the spread, halves every kConfidenceHalfLife.
  double Confidence(double now) const;
  bool operator==(const Evidence&) const = default;
};
inline constexpr double kConfidenceHalfLife = 7 * 86400.0;  // seconds
/// A figure with less confidence is measured again.
inline constexpr double kFreshConfidence = 0.3;

/// One direction of a link between two nodes, or inside one (from == to).
struct LinkMeasurement {
  std::string from, to;  // node names
  double latency_s = 0;  // one way, of a small message
  double bytes_per_second = 0;
  Evidence evidence;
  bool operator==(const LinkMeasurement&) const = default;
};

/// One layer on one kind of device. Seconds.
struct LayerMeasurement {
  std::string device_kind;       // DeviceKindName
  std::string model;             // ModelKey: what the time depends on
  std::string layer;             // "embedding", "block", "head"
  std::int64_t micro_batch = 0;  // samples
  double forward_s = 0;
  double backward_s = 0;
  double update_s = 0;           // of the optimizer, for the layer's parameters
  double gradient_variance = 0;  // mean over ranks, per parameter; 0 = not measured
  Evidence evidence;
  bool operator==(const LayerMeasurement&) const = default;
};

/// One node's device without a model.
struct DeviceMeasurement {
  std::string node;  // empty: stands for its kind
  std::string device_kind;
  double product_flops = 0;     // FLOP/s of a large float32 matrix product
  double bytes_per_second = 0;  // of copying; a copied byte counts once
  Evidence evidence;
  bool operator==(const DeviceMeasurement&) const = default;
};

/// The failures that jobs had on a node, each counted less the older it is.
struct NodeHistory {
  std::string node;
  double failures = 0;  // decayed count; halves every kConfidenceHalfLife
  bool operator==(const NodeHistory&) const = default;
};

/// A value; JSON with format_version.
struct Profile {
  std::vector<LinkMeasurement> links;
  std::vector<DeviceMeasurement> devices;
  std::vector<LayerMeasurement> layers;
  std::vector<NodeHistory> nodes;
  bool operator==(const Profile&) const = default;
};

std::string ToJson(const Profile& profile);
/// Reads a profile from untrusted text. Fails in one line on garbage, times or speeds that are not
/// finite or not positive, or a newer format_version.
Result<Profile> ProfileFromJson(std::string_view text);

}  // namespace adaptive_train
