// Sums of activations over the ranks that share each layer, and what else they exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "kernels/host_copy.h"
#include "kernels/host_memory.h"
#include "kernels/inner_groups.h"
#include "runtime/comm/group.h"
#include "runtime/comm/shared_memory.h"
#include "runtime/model/tensor_ranks.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// The rank's tensor group, as its stage sees it. Values go through memory that the ranks share,
/// piece by piece: each rank writes its own values and, when all have, adds what all wrote in the
/// order of the ranks. Without such memory they go through the transport. 16-bit values are added
/// in float32 and rounded once. Ranks share memory of the host; a device with memory of its own copies
/// its values there, and those of others back. The time of a sum is booked as exchange. Throws
/// FatalError. Not thread-safe.
///
/// A `reproducible` sum adds float32 values of 2, 4 or 8 ranks as a balanced tree, which continues
/// that of each rank's groups (kernels/inner_groups.h), also through the transport. Ranks that share
/// a head have no such order.
template <class T>
class TensorSums {
 public:
  /// What the ranks of a group share for their sums: none for one rank, or where it cannot be
  /// shared. All of them call it; it blocks.
  static std::optional<SharedMemory> MemoryOf(Group& group);

  /// What is passed by reference must outlive this.
  TensorSums(Group& group, std::optional<SharedMemory> memory, kernels::Device<T>& device,
             StepMeasure& measure, bool reproducible = false);
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
  void SumOnHost(std::span<float> values);
  template <class E>
  void SumThroughTransport(std::span<E> piece);
  template <class E>
  void SumOfSlots(std::span<E> piece);
  template <class E>
  void AddInOrder(std::int64_t first, const E* residual, std::span<E> piece);
  void AddAsTree(std::span<float> piece);
  std::span<std::byte> PartOf(int rank, std::span<std::byte> whole, std::size_t piece) const;
  void Gather(std::span<std::byte> whole, std::size_t piece);
  void GatherThroughMemory(const std::vector<std::span<std::byte>>& parts);
  void SumRows(const SharedRows<T>& rows);
  void GatherHead(const SharedHead<T>& head);
  void SumHead(const SharedHead<T>& head);
  int FirstOf(const SharedHead<T>& head) const;
  template <class Write, class Read>
  void Exchange(std::size_t bytes, const Write& write, const Read& read);
  template <class Body>
  void Booked(const Body& body);
  template <class Body>
  void Timed(const Body& body);
  template <class E>
  E* SlotOf(int rank);
  template <class E>
  void CopyTo(E* slot, const E* values, std::int64_t count);
  void Meet();

  Group& group_;
  kernels::Device<T>& device_;
  StepMeasure& measure_;
  std::optional<SharedMemory> memory_;  // two halves, each with a slot per rank
  std::size_t half_ = 0;                // of the next piece: others may still read the last one
  kernels::Buffer<float> sums_, more_;  // of 16-bit values
  const bool reproducible_;
  kernels::Buffer<float> tree_;  // the places of a reproducible sum on the way
  kernels::HostMemory host_;
  kernels::Buffer<float> gathered_;  // a slot per rank, where they share no memory
  kernels::DeviceCopy<std::byte> slot_;
  double waited_s_ = 0;
};

}  // namespace adaptive_train
