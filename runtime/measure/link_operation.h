// What both measurements of a link share: messages with one peer, on the communicator's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/comm/ucx_thread.h"

namespace adaptive_train {

/// Where an operation's messages go. `tag` is the same at both ends and of no other operation; its
/// low 8 bits are free for kinds of messages.
struct LinkEnd {
  UcxThread* thread = nullptr;
  int peer = -1;
  std::uint64_t tag = 0;
};

/// An operation made of messages to and from one peer. It is over when it has said so and all its
/// messages are done, or when one of them failed and the others have let go of their buffers.
class LinkOperation : public Operation, public std::enable_shared_from_this<LinkOperation> {
 public:
  void Cancel(const std::string& cause) final {
    if (!Done()) FailWith(cause);
  }

 protected:
  LinkOperation(std::string name, const LinkEnd& end) : Operation(std::move(name)), end_(end) {}

  // On the communicator's thread. `then` is called when the message is there, unless the operation
  // has failed. The buffer must live as long as this object.
  void Send(std::uint64_t kind, const void* data, std::size_t bytes, std::function<void()> then) {
    const int id = next_id_++;
    parts_[id] =
        end_.thread->Send(end_.peer, end_.tag | kind, data, bytes, WhenDone(id, std::move(then)));
  }
  void Receive(std::uint64_t kind, void* data, std::size_t bytes, std::function<void()> then) {
    const int id = next_id_++;
    parts_[id] = end_.thread->Receive(end_.peer, end_.tag | kind, data, bytes,
                                      WhenDone(id, std::move(then)));
  }
  /// No message follows those under way.
  void Finish() { finished_ = true; }
  void FailWith(const std::string& cause) {
    if (!failure_) failure_ = CommError{Name(), end_.peer, cause};
    for (const auto& [id, part] : parts_) end_.thread->Cancel(part);
  }

 private:
  PartDone WhenDone(int id, std::function<void()> then) {
    return [self = shared_from_this(), id, then = std::move(then)](const std::string& cause) {
      self->parts_.erase(id);
      if (!cause.empty() && !self->failure_) self->FailWith(cause);
      if (!self->failure_) then();
      if (self->parts_.empty() && (self->failure_ || self->finished_))
        self->Complete(self->failure_);
    };
  }

  const LinkEnd end_;
  std::map<int, std::shared_ptr<Part>> parts_;  // under way
  int next_id_ = 0;
  bool finished_ = false;
  std::optional<CommError> failure_;
};

}  // namespace adaptive_train
