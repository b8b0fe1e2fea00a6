// Sums of activations over the ranks that share each layer, and what else they exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "runtime/comm/group.h"
#include "runtime/comm/shared_memory.h"
#include "runtime/model/tensor_ranks.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// The rank's tensor group, as its stage sees it. Values go through memory that the ranks share,
/// piece by piece: each rank writes its own values and, when all have, adds what all wrote in the
/// order of the ranks. Without such memory they go through the transport. 16-bit values are added
/// in float32 and rounded once. Requires a device that computes in host memory. The time of a sum
/// is booked as exchange. Throws FatalError. Not thread-safe.
template <class T>
class TensorSums {
 public:
  /// What the ranks of a group share for their sums: none for one rank, or where it cannot be
  /// shared. All of them call it; it blocks.
  static std::optional<SharedMemory> MemoryOf(Group& group);

  /// What is passed by reference must outlive this.
  TensorSums(Group& group, std::optional<SharedMemory> memory, kernels::Device<T>& device,
             StepMeasure& measure);
  TensorSums(const TensorSums&) = delete;
  TensorSums& operator=(const TensorSums&) = delete;

  /// There are several ranks, and no memory that all of them share.
  bool LacksMemory() const { return group_.Size() > 1 && !memory_; }
  /// Sums by this object, which must outlive them.
  TensorRanks<T> Ranks();

 private:
  /// Of a piece, at most. Longer sums take several.
  static constexpr std::size_t kPiece = 256 * 1024;

  template <class E>
  void Sum(std::span<E> values);
  template <class E>
  void SumThroughMemory(std::span<E> piece);
  template <class E>
  void SumThroughTransport(std::span<E> piece);
  std::span<std::byte> PartOf(int rank, std::span<std::byte> whole) const;
  void Gather(std::span<std::byte> whole);
  void GatherThroughMemory(std::span<std::byte> whole);
  template <class E>
  E* SlotOf(int rank) const;
  void Meet();

  Group& group_;
  kernels::Device<T>& device_;
  StepMeasure& measure_;
  std::optional<SharedMemory> memory_;  // two halves, each with a slot per rank
  std::size_t half_ = 0;                // of the next piece: others may still read the last one
  kernels::Buffer<float> sums_, more_;  // of 16-bit values
  double waited_s_ = 0;
};

}  // namespace adaptive_train
