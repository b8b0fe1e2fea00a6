// What crosses the ends of a pipeline stage: activations on the way forward, their gradients on the
// way back.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "runtime/comm/group.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// Messages of one neighbour, in the order in which it sends them. The next one is received while
/// this rank computes with the one before. Not thread-safe; what is passed by reference must
/// outlive it.
class StageInbox {
 public:
  /// `bytes` of the largest message.
  StageInbox(Group& pipeline, int member, kernels::DeviceMemory& memory, std::size_t bytes);

  /// Messages of so many bytes each will come. All that were expected before have been taken.
  void Expect(std::vector<std::size_t> sizes);
  /// Blocks until the next message is there. It is valid until the next Take or Expect. Throws
  /// FatalError.
  const std::byte* Take();
  std::size_t bytes() const;

 private:
  static constexpr std::size_t kSlots = 2;

  void Post();

  Group& pipeline_;
  const int member_;
  std::array<kernels::Buffer<std::byte>, kSlots> slots_;
  std::array<Request, kSlots> requests_;
  std::vector<std::size_t> sizes_;
  std::size_t posted_ = 0, taken_ = 0;
};

/// Messages to one neighbour: copied, so that the caller's memory is free at once. Not thread-safe.
class StageOutbox {
 public:
  StageOutbox(Group& pipeline, int member, kernels::DeviceMemory& memory, std::size_t bytes);

  /// Blocks while two messages before this one are on their way. Throws FatalError.
  void Send(const void* message, std::size_t bytes);
  std::size_t bytes() const;

 private:
  static constexpr std::size_t kSlots = 2;

  Group& pipeline_;
  const int member_;
  kernels::DeviceMemory& memory_;
  std::array<kernels::Buffer<std::byte>, kSlots> slots_;
  std::array<Request, kSlots> requests_;
  std::size_t sent_ = 0;
};

/// Both ends of a stage. Members of the pipeline group are the stages in their order; the first
/// stage has no end to a stage before it, the last one none to a stage behind it. Waiting for a
/// neighbour is booked as bubble. Not thread-safe.
class StageBoundary {
 public:
  /// `bytes` of a micro-batch's activations [micro_batch, sequence, hidden], at most. Throws
  /// std::bad_alloc.
  StageBoundary(Group& pipeline, kernels::DeviceMemory& memory, std::size_t bytes,
                StepMeasure& measure);

  /// Micro-batches of so many bytes will go forward in this order, and, with `backward`, back in
  /// the same order.
  void Begin(const std::vector<std::size_t>& sizes, bool backward);

  // Pointers are valid until the next call of the same function, or Begin.
  const std::byte* ReceiveInput() { return Take(*inputs_); }
  const std::byte* ReceiveGradient() { return Take(*gradients_); }
  void SendOutput(const void* output, std::size_t bytes) { Send(*outputs_, output, bytes); }
  void SendGradient(const void* d_input, std::size_t bytes) { Send(*d_inputs_, d_input, bytes); }

  /// Of the device's memory.
  std::size_t bytes() const;

 private:
  const std::byte* Take(StageInbox& inbox);
  void Send(StageOutbox& outbox, const void* message, std::size_t bytes);

  StepMeasure& measure_;
  std::unique_ptr<StageInbox> inputs_;     // from the stage before
  std::unique_ptr<StageOutbox> d_inputs_;  // to it
  std::unique_ptr<StageOutbox> outputs_;   // to the next stage
  std::unique_ptr<StageInbox> gradients_;  // from it
};

}  // namespace adaptive_train
