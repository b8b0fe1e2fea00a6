#include "launcher/planner/compression.h"

#include <algorithm>
#include <cmath>

namespace adaptive_train {
namespace {

constexpr double kGradientBytes = 4;  // per element
/// Cells for each key of a large sketch (runtime/compress/count_sketch.h), of 32 bits.
constexpr double kCellsPerKey = 1.23, kCellBits = 32;
/// CPU cost per gradient byte of an exchange through owners, in units of copying a byte in memory:
/// 1.5 ns at 10.4 GB/s, whether .1 or .3 is selected. (comm_cpu_s of 13.9 M parameters on four
/// ranks, less the cost of moving the messages.)
constexpr double kCopiesPerByte = 16;
/// The same for all elements in four bits: 2.3 (selection_bench), and messages' own bytes.
constexpr double kPackedCopiesPerByte = 3;
/// The same for zstd, besides: .53 ns for each element that is written, and .39 for each that is
/// read (sparse_message_bench).
constexpr double kZstdWriteCopies = 1.4, kZstdReadCopies = 1;
/// Of an element in four bits that goes through zstd: 8.5 MiB of 10.3 in a model's steps 17 to 26
/// (tests/bench/exchange_speed); 3.56 bits of normally distributed ones (sparse_message_bench).
constexpr double kZstdBits = 3.4;
/// The same for a sketch, per byte that any rank selected: 54 to 81 ns.
constexpr double kSketchCopiesPerByte = 700;

/// Arenas that local steps end with the mean of, and the copies of each that this takes: to where
/// it is summed, its part of the mean, and back.
constexpr double kLocalArenas = 3, kLocalCopies = 3;

/// A bitmap, or Rice codes if shorter; these come near the entropy.
double IndexBits(double density) {
  if (density <= 0 || density >= 1) return 0;
  return -density * std::log2(density) - (1 - density) * std::log2(1 - density);
}

double MessageBits(double density, double value_bits) {
  return IndexBits(density) + value_bits * density;
}

/// The share of elements that at least one rank selects.
double UnionOf(double density, int members) {
  return 1 - std::pow(1 - std::clamp(density, 0.0, 1.0), members);
}

}  // namespace

double CompressedBytes(const CompressionRequest& request, int members, double gradient_bytes) {
  if (request.local_steps > 0)
    return kLocalArenas * gradient_bytes / static_cast<double>(request.local_steps);
  const double elements = gradient_bytes / kGradientBytes, sent = UnionOf(request.density, members);
  if (request.sketch) return elements * (1 + kCellsPerKey * kCellBits * sent) / 8;
  const double value_bits = request.zstd ? kZstdBits : request.value_bits;
  const double up = MessageBits(request.density, value_bits);
  const double back =
      request.gathered_bits > 0 ? request.gathered_bits : MessageBits(sent, value_bits);
  // Divided by 2, since a ring's volume goes around twice.
  return elements * (up + back) / 2 / 8;
}

double CompressionSeconds(const CompressionRequest& request, int members, double gradient_bytes,
                          double copy_bytes_per_second) {
  if (request.local_steps > 0)
    return kLocalCopies * kLocalArenas * gradient_bytes / copy_bytes_per_second /
           static_cast<double>(request.local_steps);
  double copies = request.sketch   ? kSketchCopiesPerByte * UnionOf(request.density, members)
                  : request.packed ? kPackedCopiesPerByte
                                   : kCopiesPerByte;
  // Each element is written once, and read by the owner; the sum is read by all, if it is sent.
  if (request.zstd)
    copies += kZstdWriteCopies + (request.gathered_bits > 0 ? 1 : 2) * kZstdReadCopies;
  return copies * gradient_bytes / copy_bytes_per_second;
}

}  // namespace adaptive_train
