// The interface of a compute device: one method per operation, whose contract is in the operation's
// header.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/adamw.h"
#include "kernels/arena.h"
#include "kernels/attention.h"
#include "kernels/buffer.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/head_loss.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/scalar.h"
#include "kernels/sparsify.h"
#include "kernels/swiglu.h"

namespace adaptive_train::kernels {

/// A device whose arrays hold scalars of type T and whose sums are kept in Accumulator<T>. Matrices
/// are dense and row-major; counts may be 0. All pointers point into the device's memory.
/// Operations run in the order of the calls; only one thread calls at a time. The same calls on the
/// same kind of processor give the same bits, however many threads the device uses.
template <class T>
class Device : public DeviceMemory {
 public:
  /// One line for people: the device and what it uses.
  virtual std::string Description() const = 0;

  virtual void Matmul(const MatmulArguments<T>& arguments) = 0;
  virtual void WeightGradient(const WeightGradientArguments<T>& arguments) = 0;
  virtual void LayerNorm(const NormArguments<T>& arguments) = 0;
  virtual void LayerNormBackward(const NormBackwardArguments<T>& arguments) = 0;
  virtual void RmsNorm(const NormArguments<T>& arguments) = 0;
  virtual void RmsNormBackward(const NormBackwardArguments<T>& arguments) = 0;
  virtual void Gelu(const GeluArguments<T>& arguments) = 0;
  virtual void GeluBackward(const GeluBackwardArguments<T>& arguments) = 0;
  virtual void Swiglu(const SwigluArguments<T>& arguments) = 0;
  virtual void SwigluBackward(const SwigluBackwardArguments<T>& arguments) = 0;
  virtual void Rope(const RopeArguments<T>& arguments) = 0;
  virtual void Attention(const AttentionArguments<T>& arguments) = 0;
  virtual void AttentionBackward(const AttentionBackwardArguments<T>& arguments) = 0;
  virtual void Embedding(const EmbeddingArguments<T>& arguments) = 0;
  virtual void EmbeddingBackward(const EmbeddingBackwardArguments<T>& arguments) = 0;
  virtual void HeadLoss(const HeadLossArguments<T>& arguments) = 0;
  virtual void Dropout(const DropoutArguments<T>& arguments) = 0;
  virtual void AdamW(const AdamWArguments<T>& arguments) = 0;
  virtual void Round(const RoundArguments<T>& arguments) = 0;
  /// sums[i] = values[i], exactly.
  virtual void Widen(std::int64_t count, const T* values, Accumulator<T>* sums) = 0;
  /// The sum of the values, and the sum of their squares. Both accumulate in double, in an order
  /// that depends on the count alone. 0 elements give 0; NaN and infinity propagate. Both return
  /// when the value is there.
  virtual double Sum(std::int64_t count, const Accumulator<T>* values) = 0;
  virtual double SquaredNorm(std::int64_t count, const Accumulator<T>* values) = 0;
  // Contracts are in kernels/arena.h. Hash returns when the value is there.
  virtual void AddInto(std::int64_t count, const Accumulator<T>* from, Accumulator<T>* into) = 0;
  virtual void AddDifference(std::int64_t count, const Accumulator<T>* more,
                             const Accumulator<T>* less, Accumulator<T>* into) = 0;
  virtual void Scale(std::int64_t count, Accumulator<T> factor, Accumulator<T>* values) = 0;
  virtual void ClearNotFinite(std::int64_t count, Accumulator<T>* values) = 0;
  virtual std::uint64_t Hash(const void* memory, std::size_t bytes) = 0;
  virtual void PackInt8(std::int64_t count, const Accumulator<T>* values, std::byte* packed) = 0;
  virtual void UnpackInt8(std::int64_t count, const std::byte* packed, T* values) = 0;
  /// Both return when the results are there, which do not depend on the kind of processor.
  virtual Selected Select(const SelectArguments<T>& arguments) = 0;
  virtual double Threshold(const ThresholdArguments<T>& arguments) = 0;
  /// Returns the number of values.
  virtual std::int64_t AddSelected(const AddSelectedArguments<T>& arguments) = 0;
  virtual void Sample(const SampleArguments<T>& arguments) = 0;
  /// The largest magnitude of gradients + residuals (of gradients if residuals is nullptr); NaN if
  /// any value is NaN.
  virtual double Largest(std::int64_t count, const Accumulator<T>* gradients,
                         const Accumulator<T>* residuals) = 0;
};

}  // namespace adaptive_train::kernels
