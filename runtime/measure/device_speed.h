// What a node's device and its memory give a rank, quotas and neighbours included.
#pragma once

namespace adaptive_train {

struct DeviceSpeed {
  double product_flops = 0;     // FLOP/s of float32 matrix products, mean over the time measured
  double product_spread = 0;    // relative standard deviation of that mean
  double bytes_per_second = 0;  // copied from memory to memory, read and written counted once
  double handover_s = 0;        // from one thread to another that sleeps: the latency inside a node
};

/// Keeps the device busy for about `seconds`, on `threads` threads. Means, not the best: a quota
/// that stops the process for a part of each period is what the rank gets as well. Blocks.
DeviceSpeed MeasureDevice(int threads, double seconds);

}  // namespace adaptive_train
