// What was measured of links, devices and layers, by this job or by earlier ones, and how far it is
// to be trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// How well a figure is founded. Kept as a running mean over jobs.
struct Evidence {
  std::int64_t count = 0;  // measurements that went into it, each on an occasion of its own
  double spread = 0;       // relative standard deviation of one, between them and within each
  double measured_at = 0;  // the last one, UTC seconds since 1970

  /// 0 to 1: rises with the count, falls with the spread, halves every kConfidenceHalfLife.
  double Confidence(double now) const;
};
inline constexpr double kConfidenceHalfLife = 7 * 86400.0;  // seconds
/// What has less is measured anew.
inline constexpr double kFreshConfidence = 0.3;

/// One direction of a link between two nodes, or inside one (from == to).
struct LinkMeasurement {
  std::string from, to;  // node names
  double latency_s = 0;  // one way, of a small message
  double bytes_per_second = 0;
  Evidence evidence;
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
};

/// One node's device without a model.
struct DeviceMeasurement {
  std::string node;  // where it was measured; empty: stands for its kind
  std::string device_kind;
  double product_flops = 0;     // FLOP/s of a large float32 matrix product
  double bytes_per_second = 0;  // copied, read and written counted once
  Evidence evidence;
};

/// How a node has behaved: failures that jobs had there, each counted less the longer ago it is.
struct NodeHistory {
  std::string node;
  double failures = 0;  // decayed count; halves every kConfidenceHalfLife
};

/// A value; JSON with format_version.
struct Profile {
  std::vector<LinkMeasurement> links;
  std::vector<DeviceMeasurement> devices;
  std::vector<LayerMeasurement> layers;
  std::vector<NodeHistory> nodes;
};

std::string ToJson(const Profile& profile);
/// Reads a profile from untrusted text. Fails in one line on garbage, times or speeds that are not
/// finite or not positive, a newer format_version.
Result<Profile> ProfileFromJson(std::string_view text);

}  // namespace adaptive_train
