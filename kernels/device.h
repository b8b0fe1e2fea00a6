// What a model is computed on: one method per operation, whose contract stands in the operation's
// header.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/adamw.h"
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
/// are dense and row-major; counts are 0 or more, and 0 is no special case for the caller. All
/// pointers are to the device's memory. Operations run in the order of the calls; one thread calls
/// at a time. The same calls on the same kind of processor give the same bits, however many threads
/// the device uses.
template <class T>
class Device : public DeviceMemory {
 public:
  /// One line for people: what computes, and with what.
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
  /// The sum of the values, and that of their squares. Both add up in double, in an order that
  /// depends on the count alone; 0 elements give 0, NaN and infinity are passed on. Return when the
  /// value is there.
  virtual double Sum(std::int64_t count, const Accumulator<T>* values) = 0;
  virtual double SquaredNorm(std::int64_t count, const Accumulator<T>* values) = 0;
  /// Return when the results are there. The results do not depend on the kind of processor.
  virtual Selected Select(const SelectArguments<T>& arguments) = 0;
  virtual double Threshold(const ThresholdArguments<T>& arguments) = 0;
};

}  // namespace adaptive_train::kernels
