// Messages between a rank's stages and those of other ranks: activations on the way forward, their
// gradients on the way back.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/schedule/message_slots.h"
#include "core/schedule/schedule.h"
#include "kernels/buffer.h"
#include "kernels/host_copy.h"
#include "kernels/host_memory.h"
#include "runtime/comm/group.h"
#include "runtime/model/tensor_part.h"
#include "runtime/train/step_measure.h"

namespace adaptive_train {

/// What a message of whole activations between stages of several tensor ranks consists of: each
/// sends its part to the rank that has the same place in the other stage, and what arrives there is
/// gathered.
struct BoundaryParts {
  TensorPart part;
  std::function<void(std::span<std::byte>, std::size_t)> gather;  // TensorRanks; empty: one rank

  std::span<std::byte> OwnOf(std::span<std::byte> message) const {
    const ElementRange own = part.Of(static_cast<std::int64_t>(message.size()));
    return message.subspan(static_cast<std::size_t>(own.begin),
                           static_cast<std::size_t>(own.size()));
  }
};

/// Messages of one other rank, in the order in which it sends them. Not thread-safe; what is passed
/// by reference must outlive it.
class StageInbox {
 public:
  /// At most `slots` messages at the same time, each of up to `bytes`.
  StageInbox(Group& pipeline, int member, const BoundaryParts& parts, kernels::DeviceMemory& memory,
             int slots, std::size_t bytes);

  /// Gives the next message room, so that it can arrive.
  void Post(const Action& receive, std::size_t bytes);
  /// Blocks until this rank's part of a posted receive's message has come. Throws FatalError.
  void Await(const Action& receive);
  /// That message, in the device's memory: valid until it is released, and whole once it is gathered.
  std::span<std::byte> Take(const Action& receive);
  void Release(const Action& receive);
  /// From now on micro-batches count from the one that was number `micro_batches`.
  void EndStep(int micro_batches);
  /// Of the device's memory.
  std::size_t bytes() const;

 private:
  struct Slot {
    kernels::Buffer<std::byte> buffer;
    kernels::HostCopy<std::byte> copy;  // where messages arrive
    std::size_t size = 0;               // of the message, bytes
    Request request;
    Action receive;
    bool used = false;
  };
  Slot& Of(const Action& receive);
  /// This rank's part of the slot's message, in the device's memory.
  std::span<std::byte> OwnOf(Slot& slot) const {
    return parts_.OwnOf(slot.buffer.span().first(slot.size));
  }

  Group& pipeline_;
  const int member_;
  const BoundaryParts& parts_;
  std::vector<Slot> slots_;
};

/// Messages to one other rank: copied to the host's memory, so that the caller's is free at once. Not
/// thread-safe.
class StageOutbox {
 public:
  StageOutbox(Group& pipeline, int member, const BoundaryParts& parts,
              kernels::DeviceMemory& memory, int slots, std::size_t bytes);

  /// Blocks while all slots' messages are on their way. Throws FatalError.
  void Send(const void* message, std::size_t bytes);
  /// Of the device's memory.
  std::size_t bytes() const;

 private:
  Group& pipeline_;
  const int member_;
  const BoundaryParts& parts_;
  kernels::DeviceMemory& memory_;
  kernels::HostMemory host_;
  std::vector<kernels::Buffer<std::byte>> slots_;  // in the host's memory
  std::vector<Request> requests_;                  // [slots_]
  std::size_t sent_ = 0;
};

/// All of a rank's ends to other ranks. Members of the pipeline group are its ranks in their order.
/// Waiting for another rank is booked as bubble; what the device has to compute before is not. Not
/// thread-safe.
class StageBoundary {
 public:
  /// `schedule` has sends and receives and has passed CheckSchedule; it must outlive this. `bytes`
  /// of a micro-batch's activations [micro_batch, sequence, hidden], at most. Throws
  /// std::bad_alloc.
  StageBoundary(const Schedule& schedule, Group& pipeline, BoundaryParts parts,
                kernels::DeviceMemory& memory, std::size_t bytes, StepMeasure& measure);
  StageBoundary(const StageBoundary&) = delete;
  StageBoundary& operator=(const StageBoundary&) = delete;

  // Receives of each other rank are posted in the order of its sends. All tensor ranks of a stage
  // take the same messages in the same order.
  void Post(const Action& receive, std::size_t bytes);
  const std::byte* Take(const Action& receive);
  /// What was taken is used up.
  void Release(const Action& receive);
  void Send(const Action& send, const void* message, std::size_t bytes);
  /// What is posted already is the next step's, whose micro-batches count from this one's end.
  void EndStep(int micro_batches);

  /// Of the device's memory.
  std::size_t bytes() const;

 private:
  StageInbox& InboxOf(const Action& receive) { return inboxes_.at(PeerOf(schedule_, receive)); }

  const Schedule& schedule_;
  const BoundaryParts parts_;
  kernels::DeviceMemory& memory_;
  StepMeasure& measure_;
  // By member.
  std::map<int, StageInbox> inboxes_;
  std::map<int, StageOutbox> outboxes_;
};

}  // namespace adaptive_train
