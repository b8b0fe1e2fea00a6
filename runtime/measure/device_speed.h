// The speed of a node's device and memory for a rank, under quotas and other jobs.
#pragma once

#include <vector>

namespace adaptive_train {

struct DeviceSpeed {
  double product_flops = 0;     // FLOP/s of float32 matrix products: the median of several bursts
  double product_spread = 0;    // relative standard deviation between the bursts
  double bytes_per_second = 0;  // memory to memory; a copied byte counts once
  double handover_s = 0;        // to a sleeping thread: the latency inside a node
};

/// The number of bursts of products, and of copies, in MeasureDevice.
inline constexpr int kDeviceBursts = 5;

/// Keeps the device busy for about `seconds` on `threads` threads, in kDeviceBursts bursts. A short
/// disturbance on the node spoils some bursts and shows in the spread. Each burst counts by its
/// mean, not its best: a quota that stops the process for a part of each period affects the rank as
/// well. Blocks.
DeviceSpeed MeasureDevice(int threads, double seconds);

/// Several measurements of the same thing.
struct RepeatedRate {
  double median = 0;
  double spread = 0;  // standard deviation over median; 0 for a single one
};
RepeatedRate RepeatedRateOf(std::vector<double> rates);

}  // namespace adaptive_train
