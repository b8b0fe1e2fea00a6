// Measurements of links, devices and layers, from this job or earlier ones, with their confidence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/failure_kind.h"
#include "core/orders.h"
#include "core/result.h"

namespace adaptive_train {

/// Who stands behind a figure that a store of several users tells (db/told_figures.h).
enum class Trust : std::uint8_t {
  kKnown,        // the user who asks, or so many others that none of them can move it far
  kUnconfirmed,  // one or two others
  kDisputed,     // three users or more, one of whom moves it
};
// Their names: NameOf and ChoiceOf of core/orders.h.
template <>
std::span<const std::string_view> NamesOf<Trust>();

/// How reliable a figure is. Figures are running means over jobs.
struct Evidence {
  std::int64_t count = 0;  // measurements in the mean, each at a different time
  double spread = 0;       // relative standard deviation of one, between and within measurements
  double measured_at = 0;  // the last one, UTC seconds since 1970
  Trust trust = Trust::kKnown;

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
  /// Of backward_s, what a backward in halves leaves to its second half. 0 for a block: not
  /// measured apart.
  double weight_gradients_s = 0;
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
  /// Processor seconds for each byte sent to or received from other nodes; 0 = not measured.
  double transfer_s_per_byte = 0;
  bool operator==(const DeviceMeasurement&) const = default;
};

/// Failures count half as much after this time, unless recovery.half_life_days says otherwise.
inline constexpr double kFailureHalfLifeDays = 14;
/// With a lower decayed count of failures nothing is said of a node or link.
inline constexpr double kFailedLately = 0.05;

/// How often something happened.
struct CountedFailures {
  FailureKind kind = FailureKind::kUnknown;
  std::int64_t count = 0;
  bool operator==(const CountedFailures&) const = default;
};

/// The failures of a node that say something about it, each counted less the older it is.
struct NodeHistory {
  std::string node;
  double failures = 0;                      // decayed count
  std::vector<CountedFailures> kinds = {};  // undecayed
  double within_s = 0;                      // seconds since the oldest of them
  std::int64_t users = 1;                   // in whose jobs they came
  std::int64_t outages = 0;                 // more, that Slurm told of
  bool operator==(const NodeHistory&) const = default;
};

/// The same of the link between two nodes that lost each other, in either direction.
struct LinkHistory {
  std::string from, to;
  double failures = 0;
  std::int64_t count = 0;
  double within_s = 0;
  bool operator==(const LinkHistory&) const = default;
};

/// "n3: silent twice, out of memory once in jobs of 3 users, down by Slurm's word once in the last
/// 10 days"; what there is of it.
std::string Describe(const NodeHistory& history);
/// "link n1 to n2: lost once in the last 3 days".
std::string Describe(const LinkHistory& history);

/// A value; JSON with format_version.
struct Profile {
  std::vector<LinkMeasurement> links;
  std::vector<DeviceMeasurement> devices;
  std::vector<LayerMeasurement> layers;
  std::vector<NodeHistory> nodes;
  std::vector<LinkHistory> lost_links = {};
  bool operator==(const Profile&) const = default;
};

std::string ToJson(const Profile& profile);
/// The same in one line, as a part of another document.
void WriteJson(std::string& to, const Profile& profile);
/// Reads a profile from untrusted text. Fails in one line on garbage, times or speeds that are not
/// finite or not positive, or a newer format_version.
Result<Profile> ProfileFromJson(std::string_view text);

}  // namespace adaptive_train
