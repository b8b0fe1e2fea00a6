// Which elements of a chunk of gradients are sent in this step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "runtime/exchange/gradient_buckets.h"

namespace adaptive_train {

/// The selected elements of one piece. Points into the selection's memory.
struct SelectedPiece {
  std::span<const std::uint64_t> bitmap;  // ceil(length / 64) words
  std::int64_t count = 0;
  const std::byte* values = nullptr;  // in the format asked for
  int smallest = 0;                   // of kFloat8, as a SparseMessageWriter wants it
};

/// Those of one chunk, valid until the next one is selected.
struct SelectedChunk {
  std::vector<SelectedPiece> pieces;
  std::int64_t count = 0;
  bool finite = true;  // false: nothing of it may be sent; residuals have what is finite
};

/// A value as it is sent, read again; `index` counts values.
float ValueAt(kernels::ValueFormat format, const std::byte* values, std::size_t index);

/// Selects from an arena of gradients and feeds back to its residuals. Not thread-safe.
template <class T>
class GradientSelection {
 public:
  /// `residuals` is as long as `gradients`, or empty: no feedback, and everything is selected.
  GradientSelection(kernels::Device<T>& device, std::span<const float> gradients,
                    std::span<float> residuals)
      : device_(device), gradients_(gradients), residuals_(residuals) {}

  /// About `density` of each matrix's elements, the largest, and all of its vectors'; `keep` as in
  /// kernels/sparsify.h. Of kFloat8, values of vectors and of pieces of which all is sent stay
  /// bfloat16: there is no threshold that their sizes could begin at. So do those of pieces that
  /// are nearly all 0, as rows of tokens that did not occur: sizes from their threshold on would
  /// end below what is worth sending.
  SelectedChunk Select(const GradientChunk& chunk, double density, double keep,
                       kernels::ValueFormat format);

  /// None of the chunk's elements, whatever they are; residuals stay as they are.
  SelectedChunk Nothing(const GradientChunk& chunk);

 private:
  /// From which magnitude on a piece's elements are sent, and the largest that was looked at.
  struct Threshold {
    double least = 0, largest = 0;
  };

  Threshold ThresholdOf(const GradientPiece& piece, double density);
  void PutBack(const GradientPiece& piece, const SelectedPiece& selected,
               kernels::ValueFormat format);
  float* ResidualsAt(std::size_t place) {
    return residuals_.empty() ? nullptr : residuals_.data() + place;
  }

  kernels::Device<T>& device_;
  const std::span<const float> gradients_;
  const std::span<float> residuals_;
  // Room for one chunk.
  std::vector<std::uint64_t> bitmaps_;
  std::vector<std::byte> values_;
  std::vector<float> sample_;
};

}  // namespace adaptive_train
