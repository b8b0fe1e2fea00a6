// A count sketch of integers with known keys, decoded by peeling (TAGC, Polyakov, Dukhanov, Spirin
// 2025, section 2.2, after Li et al., Lossless Homomorphic Compression, 2024).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace adaptive_train {

/// Each key's number is added to three cells, one in each third of the sketch. Sketches of the same
/// graph are summed cell by cell, modulo 2^32: the sum is the sketch of the sums. A cell with one
/// key left holds that key's number, which is then removed from its other cells, and so on. Both
/// sides know the keys, so signs and keys are not sent. Whether peeling succeeds is known before
/// anything is sent. A value: const functions may be called by several threads.
class CountSketch {
 public:
  /// The sketch of the keys 0 .. keys - 1 (fewer than 2^31), hashed with `seed`. Time and memory
  /// are proportional to the keys (8 bytes each, three times that during construction).
  CountSketch(std::size_t keys, std::uint64_t seed);

  /// The number of cells for this many keys, so that fewer than one graph in a thousand cannot be
  /// peeled. Few keys fail when two share all three cells (27/2 keys^2 / cells^3 of all graphs).
  /// Many keys fail with fewer than 1.222 cells per key (Botelho, Pagh, Ziviani 2007). Cells per
  /// key, and failed graphs:
  ///   14.1 for 10 keys (13 of 20,000)     6.5 for 100 (11 of 20,000)
  ///   3.0 for 1,000 (5 of 10,000)         1.76 for 5,000 (0 of 4,000)
  ///   1.26 for 14,000 (0 of 2,000)        1.25 for 30,000 (0 of 2,000)
  ///   1.233 for a million
  static std::size_t CellsFor(std::size_t keys);

  std::size_t keys() const { return keys_; }
  std::size_t cells() const { return 3 * third_; }
  /// Whether peeling succeeds. If not, Decode must not be called.
  bool peels() const { return order_.size() == keys_; }

  /// Adds numbers[key] of all keys to their cells.
  std::vector<std::uint32_t> Encode(std::span<const std::int32_t> numbers) const;
  /// Extracts numbers[key] of all keys from the cells, which become 0. Returns false if they do
  /// not: the cells are then no sketch of this graph, and the numbers are invalid.
  bool Decode(std::span<std::uint32_t> cells, std::span<std::int32_t> numbers) const;

 private:
  struct Peeled {
    std::uint32_t key = 0;
    std::uint32_t cell = 0;  // where the key is alone by then
  };
  std::array<std::uint32_t, 3> CellsOf(std::uint32_t key) const;
  void Peel();

  std::size_t keys_;
  std::uint64_t third_;  // cells
  std::uint64_t seed_;
  std::vector<Peeled> order_;
};

/// The seed of a bucket's graph in a step. A graph that cannot be peeled does not recur in the
/// next.
std::uint64_t SketchSeed(std::uint32_t bucket, std::int64_t step);

}  // namespace adaptive_train
