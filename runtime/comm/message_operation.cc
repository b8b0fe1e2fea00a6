#include "runtime/comm/message_operation.h"

#include <utility>

namespace adaptive_train {

void MessageOperation::Start() {
  pending_ = 1;
  Begin();
  PartOver(0);
}

void MessageOperation::Cancel(const std::string& cause) {
  if (Done()) return;
  NoteMissing(cause);
  FailWith(FirstMissing(), cause);
}

/// -1: nothing is waited for.
int MessageOperation::FirstMissing() const {
  for (const auto& [id, part] : parts_)
    if (part.is_receive) return part.rank;
  return -1;
}

PartDone MessageOperation::WhenDone(std::uint64_t id, int rank, std::function<void()> then) {
  return [this, self = shared_from_this(), id, rank,
          then = std::move(then)](const std::string& cause) {
    if (!cause.empty()) {
      FailWith(rank, cause);
    } else if (then && !failure_) {
      then();
    }
    PartOver(id);
  };
}

void MessageOperation::Send(int rank, std::uint64_t tag, std::span<const std::byte> from,
                            std::function<void()> then, Sending sending) {
  const std::uint64_t id = next_id_++;
  ++pending_;
  parts_[id] = {transport_.Send(rank, tag, from.data(), from.size(), sending,
                                WhenDone(id, rank, std::move(then))),
                rank, false};
}

void MessageOperation::Receive(int rank, std::uint64_t tag, std::span<std::byte> to,
                               std::function<void()> then) {
  const std::uint64_t id = next_id_++;
  ++pending_;
  parts_[id] = {
      transport_.Receive(rank, tag, to.data(), to.size(), WhenDone(id, rank, std::move(then))),
      rank, true};
}

std::shared_ptr<Part> MessageOperation::ReceiveUpTo(int rank, std::uint64_t tag,
                                                    std::span<std::byte> to, ReceiveDone done) {
  const std::uint64_t id = next_id_++;
  ++pending_;
  auto part = transport_.ReceiveUpTo(rank, tag, to.data(), to.size(),
                                     [this, self = shared_from_this(), id, done = std::move(done)](
                                         const std::string& cause, std::size_t bytes) {
                                       done(cause, bytes);
                                       PartOver(id);
                                     });
  parts_[id] = {part, rank, true};
  return part;
}

void MessageOperation::Note(int rank, const std::string& cause) {
  if (!failure_) failure_ = CommError{Name(), rank, cause};
}

void MessageOperation::FailWith(int rank, const std::string& cause) {
  Note(rank, cause);
  CancelAll();
}

void MessageOperation::CancelAll() {
  if (std::exchange(cancelled_, true)) return;
  for (const auto& [id, under_way] : parts_) transport_.Cancel(under_way.part);
}

void MessageOperation::PartOver(std::uint64_t id) {
  parts_.erase(id);
  if (--pending_ > 0) return;
  End();
  Complete(failure_);
}

}  // namespace adaptive_train
