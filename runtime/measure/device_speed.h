// What a node's device and its memory give a rank, quotas and neighbours included.
#pragma once

#include <vector>

namespace adaptive_train {

struct DeviceSpeed {
  double product_flops = 0;     // FLOP/s of float32 matrix products: the median of several bursts
  double product_spread = 0;    // relative standard deviation between the bursts
  double bytes_per_second = 0;  // copied from memory to memory, read and written counted once
  double handover_s = 0;        // from one thread to another that sleeps: the latency inside a node
};

/// Bursts of products and of copies that MeasureDevice takes turns with.
inline constexpr int kDeviceBursts = 5;

/// Keeps the device busy for about `seconds`, on `threads` threads, in bursts of kDeviceBursts: what
/// else is on the node for a moment spoils some of them, and shows in the spread. Each burst counts
/// by its mean, not its best: a quota that stops the process for a part of each period is what the
/// rank gets as well. Blocks.
DeviceSpeed MeasureDevice(int threads, double seconds);

/// The same thing measured several times.
struct RepeatedRate {
  double median = 0;
  double spread = 0;  // standard deviation over median; 0 with less than two
};
RepeatedRate RepeatedRateOf(std::vector<double> rates);

}  // namespace adaptive_train
