#include "runtime/train/stage_boundary.h"

#include <cassert>
#include <utility>

#include "runtime/train/collective.h"

namespace adaptive_train {

StageInbox::StageInbox(Group& pipeline, int member, kernels::DeviceMemory& memory,
                       std::size_t bytes)
    : pipeline_(pipeline), member_(member) {
  for (auto& slot : slots_) slot = {memory, bytes};
}

void StageInbox::Expect(std::vector<std::size_t> sizes) {
  assert(taken_ == sizes_.size());
  sizes_ = std::move(sizes);
  posted_ = taken_ = 0;
  while (posted_ < std::min(kSlots, sizes_.size())) Post();
}

void StageInbox::Post() {
  const std::size_t slot = posted_ % kSlots;
  requests_[slot] =
      pipeline_.Receive(member_, Purpose::kActivation, slots_[slot].span().first(sizes_[posted_]));
  ++posted_;
}

const std::byte* StageInbox::Take() {
  assert(taken_ < sizes_.size());
  // The message that was taken last has been used up; its slot is free for one more.
  if (taken_ > 0 && posted_ < sizes_.size()) Post();
  const std::size_t slot = taken_++ % kSlots;
  Await(requests_[slot].Wait(CollectiveDeadline()));
  return slots_[slot].data();
}

std::size_t StageInbox::bytes() const { return kSlots * slots_.front().bytes(); }

StageOutbox::StageOutbox(Group& pipeline, int member, kernels::DeviceMemory& memory,
                         std::size_t bytes)
    : pipeline_(pipeline), member_(member), memory_(memory) {
  for (auto& slot : slots_) slot = {memory, bytes};
}

void StageOutbox::Send(const void* message, std::size_t bytes) {
  const std::size_t slot = sent_++ % kSlots;
  Await(requests_[slot].Wait(CollectiveDeadline()));
  memory_.CopyWithin(slots_[slot].data(), message, bytes);
  requests_[slot] = pipeline_.Send(member_, Purpose::kActivation, slots_[slot].span().first(bytes));
}

std::size_t StageOutbox::bytes() const { return kSlots * slots_.front().bytes(); }

StageBoundary::StageBoundary(Group& pipeline, kernels::DeviceMemory& memory, std::size_t bytes,
                             StepMeasure& measure)
    : measure_(measure) {
  const int stage = pipeline.Rank();
  if (stage > 0) {
    inputs_ = std::make_unique<StageInbox>(pipeline, stage - 1, memory, bytes);
    d_inputs_ = std::make_unique<StageOutbox>(pipeline, stage - 1, memory, bytes);
  }
  if (stage + 1 < pipeline.Size()) {
    outputs_ = std::make_unique<StageOutbox>(pipeline, stage + 1, memory, bytes);
    gradients_ = std::make_unique<StageInbox>(pipeline, stage + 1, memory, bytes);
  }
}

void StageBoundary::Begin(const std::vector<std::size_t>& sizes, bool backward) {
  if (inputs_) inputs_->Expect(sizes);
  if (gradients_ && backward) gradients_->Expect(sizes);
}

const std::byte* StageBoundary::Take(StageInbox& inbox) {
  return measure_.As(Activity::kBubble, [&] { return inbox.Take(); });
}

void StageBoundary::Send(StageOutbox& outbox, const void* message, std::size_t bytes) {
  measure_.As(Activity::kExposedComm, [&] { outbox.Send(message, bytes); });
}

std::size_t StageBoundary::bytes() const {
  return (inputs_ ? inputs_->bytes() + d_inputs_->bytes() : 0) +
         (outputs_ ? outputs_->bytes() + gradients_->bytes() : 0);
}

}  // namespace adaptive_train
