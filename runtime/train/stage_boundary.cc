#include "runtime/train/stage_boundary.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/comm/collective.h"

namespace adaptive_train {

StageInbox::StageInbox(Group& pipeline, int member, const BoundaryParts& parts,
                       kernels::DeviceMemory& memory, int slots, std::size_t bytes)
    : pipeline_(pipeline), member_(member), parts_(parts), slots_(static_cast<std::size_t>(slots)) {
  for (Slot& slot : slots_) {
    slot.buffer = {memory, bytes};
    slot.copy = {memory, slot.buffer.span()};
  }
}

StageInbox::Slot& StageInbox::Of(const Action& receive) {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.used && slot.receive == receive;
  });
  assert(found != slots_.end());
  return *found;
}

void StageInbox::Post(const Action& receive, std::size_t bytes) {
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& some) { return !some.used; });
  assert(slot != slots_.end());
  slot->used = true;
  slot->receive = receive;
  slot->size = bytes;
  slot->request = pipeline_.Receive(member_, Purpose::kActivation, slot->copy.Of(OwnOf(*slot)));
}

void StageInbox::Await(const Action& receive) {
  adaptive_train::Await(Of(receive).request.Wait(CollectiveDeadline()));
}

std::span<std::byte> StageInbox::Take(const Action& receive) {
  Slot& slot = Of(receive);
  slot.copy.Store(OwnOf(slot));
  return slot.buffer.span().first(slot.size);
}

void StageInbox::Release(const Action& receive) { Of(receive).used = false; }

void StageInbox::EndStep(int micro_batches) {
  for (Slot& slot : slots_) slot.receive.micro_batch -= micro_batches;
}

std::size_t StageInbox::bytes() const {
  std::size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.buffer.bytes();
  return bytes;
}

StageOutbox::StageOutbox(Group& pipeline, int member, const BoundaryParts& parts,
                         kernels::DeviceMemory& memory, int slots, std::size_t bytes)
    : pipeline_(pipeline),
      member_(member),
      parts_(parts),
      memory_(memory),
      slots_(static_cast<std::size_t>(slots)),
      requests_(slots_.size()) {
  for (auto& slot : slots_) slot = {host_, bytes};
}

void StageOutbox::Send(const void* message, std::size_t bytes) {
  const std::size_t slot = sent_++ % slots_.size();
  Await(requests_[slot].Wait(CollectiveDeadline()));
  const std::span<std::byte> copy = slots_[slot].span().first(bytes), own = parts_.OwnOf(copy);
  memory_.CopyToHost(
      own.data(), static_cast<const std::byte*>(message) + (own.data() - copy.data()), own.size());
  requests_[slot] = pipeline_.Send(member_, Purpose::kActivation, own);
}

std::size_t StageOutbox::bytes() const {
  std::size_t bytes = 0;
  for (const auto& slot : slots_) bytes += memory_.OnHost() ? slot.bytes() : 0;
  return bytes;
}

StageBoundary::StageBoundary(const Schedule& schedule, Group& pipeline, BoundaryParts parts,
                             kernels::DeviceMemory& memory, std::size_t bytes, StepMeasure& measure)
    : schedule_(schedule), parts_(std::move(parts)), memory_(memory), measure_(measure) {
  for (const MessageSlots& slots : SlotsOf(schedule, pipeline.Rank())) {
    inboxes_.try_emplace(slots.rank, pipeline, slots.rank, parts_, memory, slots.received, bytes);
    outboxes_.try_emplace(slots.rank, pipeline, slots.rank, parts_, memory, slots.sent, bytes);
  }
}

void StageBoundary::Post(const Action& receive, std::size_t bytes) {
  InboxOf(receive).Post(receive, bytes);
}

const std::byte* StageBoundary::Take(const Action& receive) {
  StageInbox& inbox = InboxOf(receive);
  memory_.Wait();
  measure_.As(Activity::kBubble, [&] { inbox.Await(receive); });
  const std::span<std::byte> message = inbox.Take(receive);
  if (parts_.gather) parts_.gather(message, 1);
  return message.data();
}

void StageBoundary::Release(const Action& receive) { InboxOf(receive).Release(receive); }

void StageBoundary::Send(const Action& send, const void* message, std::size_t bytes) {
  memory_.Wait();
  measure_.As(Activity::kExposedComm,
              [&] { outboxes_.at(PeerOf(schedule_, send)).Send(message, bytes); });
}

void StageBoundary::EndStep(int micro_batches) {
  for (auto& [member, inbox] : inboxes_) inbox.EndStep(micro_batches);
}

std::size_t StageBoundary::bytes() const {
  std::size_t bytes = 0;
  for (const auto& [member, inbox] : inboxes_) bytes += inbox.bytes();
  for (const auto& [member, outbox] : outboxes_) bytes += outbox.bytes();
  return bytes;
}

}  // namespace adaptive_train
