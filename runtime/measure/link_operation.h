// The base of both measurements of a link: messages with one peer, on the communicator's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "runtime/comm/message_operation.h"

namespace adaptive_train {

/// The destination of an operation's messages. `tag` is the same at both ends and used by no other
/// operation; its low 8 bits are free for kinds of messages.
struct LinkEnd {
  Transport* transport = nullptr;
  int peer = -1;  // a rank of the job
  std::uint64_t tag = 0;
};

/// An operation made of messages to and from one peer.
class LinkOperation : public MessageOperation {
 protected:
  LinkOperation(std::string name, const LinkEnd& end)
      : MessageOperation(std::move(name), *end.transport), end_(end) {}

  // Calls `then` when the message is there, unless the operation has failed. The buffer must live
  // as long as this object.
  void SendKind(std::uint64_t kind, const void* data, std::size_t bytes,
                std::function<void()> then) {
    Send(end_.peer, end_.tag | kind, {static_cast<const std::byte*>(data), bytes}, std::move(then));
  }
  void ReceiveKind(std::uint64_t kind, void* data, std::size_t bytes, std::function<void()> then) {
    Receive(end_.peer, end_.tag | kind, {static_cast<std::byte*>(data), bytes}, std::move(then));
  }
  void FailWithPeer(const std::string& cause) { FailWith(end_.peer, cause); }

 private:
  /// A cancelled operation was waiting for its peer.
  void NoteMissing(const std::string& cause) override { Note(end_.peer, cause); }

  const LinkEnd end_;
};

}  // namespace adaptive_train
