// What compressing gradients is expected to send and to cost.
#pragma once

namespace adaptive_train {

/// How gradients may be compressed, as the configuration asks.
struct CompressionRequest {
  bool always = true;    // false: only the layers that are summed sooner so
  bool sketch = false;   // as count sketches instead of through the owners
  double density = 0.1;  // of the elements, that a rank selects; the middle where layers differ
  double value_bits = 16;
  /// Sharded optimizers get their sums by gathering parameters of so many bits; 0: not sharded.
  double gathered_bits = 0;
  double feedback_copies = 0;  // of the gradients, that it takes in memory
  bool from_start = false;     // no step's gradients go whole, but for vectors
};

/// Bytes that a ring would have to sum for a layer of `gradient_bytes` (float32), to put as much on
/// each link as `members` ranks do with this compression (docs/gradient_exchange.md). Ranks are
/// taken to select independently; what they do alike makes it less.
double CompressedBytes(const CompressionRequest& request, int members, double gradient_bytes);

/// Seconds of selecting, packing, unpacking and adding, on a device that copies so many bytes per
/// second.
double CompressionSeconds(const CompressionRequest& request, int members, double gradient_bytes,
                          double copy_bytes_per_second);

}  // namespace adaptive_train
