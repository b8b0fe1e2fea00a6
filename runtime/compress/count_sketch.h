// A count sketch of whole numbers whose keys are known, taken apart by peeling (TAGC, Polyakov,
// Dukhanov, Spirin 2025, section 2.2, after Li et al., Lossless Homomorphic Compression, 2024).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace adaptive_train {

/// Each key's number is added to three cells, one in each third of the sketch. Sketches of the same
/// graph are summed cell by cell, modulo 2^32: the sum is the sketch of the sums. A cell with one
/// key left tells that key's number, which is then taken out of its other cells, and so on. Both
/// sides know the keys, so no sign or key is sent, and whether the peeling ends is known before
/// anything is. A value: const functions may be called by several threads.
class CountSketch {
 public:
  /// The sketch of the keys 0 .. keys - 1 (fewer than 2^31), hashed by `seed`. Takes time and
  /// memory in proportion to the keys (8 bytes for each, thrice that while it is made).
  CountSketch(std::size_t keys, std::uint64_t seed);

  /// Cells for as many keys, so that fewer than one graph in a thousand cannot be peeled. Few keys
  /// fail by two that share all three cells (27/2 keys^2 / cells^3 of all graphs), many where there
  /// are fewer than 1.222 cells for each (Botelho, Pagh, Ziviani 2007). Cells per key, and graphs
  /// that failed: 14.1 for 10 keys (13 of 20,000), 6.5 for 100 (11 of 20,000), 3.0 for 1,000 (5 of
  /// 10,000), 1.76 for 5,000 (0 of 4,000), 1.26 for 14,000 and 1.25 for 30,000 (0 of 2,000 each),
  /// 1.233 for a million.
  static std::size_t CellsFor(std::size_t keys);

  std::size_t keys() const { return keys_; }
  std::size_t cells() const { return 3 * third_; }
  /// Whether peeling comes to its end. If not, Decode must not be called.
  bool peels() const { return order_.size() == keys_; }

  /// numbers[key] of all keys, added to their cells.
  std::vector<std::uint32_t> Encode(std::span<const std::int32_t> numbers) const;
  /// numbers[key] of all keys out of their cells, which become 0. False: they do not, so that the
  /// cells are no sketch of this graph; the numbers are then worth nothing.
  bool Decode(std::span<std::uint32_t> cells, std::span<std::int32_t> numbers) const;

 private:
  struct Peeled {
    std::uint32_t key = 0;
    std::uint32_t cell = 0;  // where it is alone by then
  };
  std::array<std::uint32_t, 3> CellsOf(std::uint32_t key) const;
  void Peel();

  std::size_t keys_;
  std::uint64_t third_;  // cells
  std::uint64_t seed_;
  std::vector<Peeled> order_;
};

/// The seed of a bucket's graph in a step: one that cannot be peeled is not met again in the next.
std::uint64_t SketchSeed(std::uint32_t bucket, std::int64_t step);

}  // namespace adaptive_train
