// Selects the elements of a chunk of gradients that are sent in this step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/host_copy.h"
#include "kernels/memory_pool.h"
#include "runtime/exchange/gradient_buckets.h"

namespace adaptive_train {

/// The selected elements of one piece. Points into the selection's memory, in the host's.
struct SelectedPiece {
  std::span<const std::uint64_t> bitmap;  // ceil(length / 64) words; empty for kPackedWhole
  std::int64_t count = 0;
  const std::byte* values = nullptr;  // in the requested format
  int smallest = 0;                   // as SparseMessageWriter::Add takes it
};

/// The selected elements of one chunk, valid until the next selection.
struct SelectedChunk {
  std::vector<SelectedPiece> pieces;
  std::int64_t count = 0;
  bool finite = true;  // false: nothing may be sent; residuals have the finite values
};

/// Reads value number `index` in the format in which it is sent.
float ValueAt(kernels::ValueFormat format, const std::byte* values, std::size_t index);

/// Selects from an arena of gradients and updates its residuals. Not thread-safe.
template <class T>
class GradientSelection {
 public:
  /// `residuals` is as long as `gradients`, or empty: then there is no feedback and everything is
  /// selected.
  GradientSelection(kernels::Device<T>& device, std::span<const float> gradients,
                    std::span<float> residuals)
      : device_(device), gradients_(gradients), residuals_(residuals) {}

  /// Selects the largest `density` (about) of each piece that is selected from, and all of others;
  /// `keep` is as in kernels/sparsify.h. With kFloat8 some values stay bfloat16: those of vectors
  /// and of pieces that are sent whole, which have no threshold at which sizes could start. So do
  /// pieces that are nearly all 0, such as rows of tokens that did not occur: sizes above their
  /// threshold would miss larger values. With kInt4 all elements are sent, of pieces that are selected
  /// from and not shorter than a block in 4 bits, of others as bfloat16.
  SelectedChunk Select(const GradientChunk& chunk, double density, double keep,
                       kernels::ValueFormat format);

  /// Selects none of the chunk's elements; residuals do not change.
  SelectedChunk Nothing(const GradientChunk& chunk);

 private:
  /// The magnitude from which a piece's elements are sent, and the largest one sampled.
  struct Threshold {
    double least = 0, largest = 0;
  };

  Threshold ThresholdOf(const GradientPiece& piece, double density);
  SelectedPiece Pack(const GradientPiece& piece, double keep, std::byte* to, bool& finite);
  void PutBack(const GradientPiece& piece, const SelectedPiece& selected,
               kernels::ValueFormat format);
  void Fetch(const GradientChunk& chunk, std::size_t value_bytes, SelectedChunk& selected);
  float* ResidualsAt(std::size_t place) {
    return residuals_.empty() ? nullptr : residuals_.data() + place;
  }

  kernels::Device<T>& device_;
  const std::span<const float> gradients_;
  const std::span<float> residuals_;
  // Room for one chunk.
  kernels::CopiedArray<std::uint64_t> bitmaps_;
  kernels::CopiedArray<std::byte> values_;
  kernels::PooledVector<std::byte> packed_;  // pieces in 4 bits
  kernels::Buffer<float> sample_;
};

}  // namespace adaptive_train
