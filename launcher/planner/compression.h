// The expected volume and cost of compressed gradients.
#pragma once

#include <cstdint>

namespace adaptive_train {

/// The configuration's request for compression.
struct CompressionRequest {
  bool always = true;    // false: only layers whose sums become faster
  bool sketch = false;   // as count sketches instead of through the owners
  double density = 0.1;  // the share of elements that a rank selects; the median over layers
  double value_bits = 16;
  bool packed = false;  // all elements, in four bits
  bool zstd = false;    // these go through zstd too
  /// Bits per parameter that sharded optimizers gather instead of sums; 0: not sharded.
  double gathered_bits = 0;
  double feedback_copies = 0;  // its memory, in copies of the gradients
  bool from_start = false;     // from the first step on, only vectors are sent whole
  /// Above 0: replicas sum nothing for so many steps, then parameters and both moments.
  std::int64_t local_steps = 0;
};

/// The bytes of a layer for which a ring would load each link as much as compression does. The
/// layer has `gradient_bytes` (float32), on `members` ranks (docs/gradient_exchange.md). Ranks are
/// assumed to select independently; similar selections make it less.
double CompressedBytes(const CompressionRequest& request, int members, double gradient_bytes);

/// Seconds of selecting, packing, unpacking and adding on a device with this copy speed in bytes
/// per second.
double CompressionSeconds(const CompressionRequest& request, int members, double gradient_bytes,
                          double copy_bytes_per_second);

}  // namespace adaptive_train
