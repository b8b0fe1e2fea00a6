// The common base of operations made of messages: parts under way, the first failure, cancelling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/comm/lane.h"
#include "runtime/comm/request.h"
#include "runtime/comm/transport.h"

namespace adaptive_train {

/// Starts sends and receives, and is over when none of them is under way. Derived classes must be
/// held by a shared_ptr. Everything runs on the executor's thread.
class MessageOperation : public Operation, public std::enable_shared_from_this<MessageOperation> {
 public:
  void Start() final;
  void Cancel(const std::string& cause) final;

 protected:
  MessageOperation(std::string name, Transport& transport)
      : Operation(std::move(name)), transport_(transport) {}

  Transport& transport() const { return transport_; }
  bool Failed() const { return failure_.has_value(); }
  bool Cancelled() const { return cancelled_; }

  // `rank` is a rank of the job. Buffers must stay valid until the operation is over.

  /// Calls `then` when the message has left, unless something has failed before. A send that fails
  /// cancels all that is under way.
  void Send(int rank, std::uint64_t tag, std::span<const std::byte> from,
            std::function<void()> then = {}, Sending sending = Sending::kWhenAsked);
  /// The same for a message that fills `to`.
  void Receive(int rank, std::uint64_t tag, std::span<std::byte> to,
               std::function<void()> then = {});
  /// Receives up to to.size() bytes. `done` is always called and decides what a failure means. The
  /// returned part is for CancelPart.
  std::shared_ptr<Part> ReceiveUpTo(int rank, std::uint64_t tag, std::span<std::byte> to,
                                    ReceiveDone done);

  /// Records the failure if it is the first; cancels nothing. -1: no particular rank.
  void Note(int rank, const std::string& cause);
  /// Records the failure and cancels everything under way.
  void FailWith(int rank, const std::string& cause);
  void CancelPart(const std::shared_ptr<Part>& part) { transport_.Cancel(part); }

 private:
  /// Starts the first sends and receives.
  virtual void Begin() = 0;
  /// Called when nothing is under way any more. May Note a failure; frees memory.
  virtual void End() {}
  /// Cancel was called: may Note whose message has not come, otherwise that is the rank from which
  /// one was asked for first.
  virtual void NoteMissing(const std::string& /*cause*/) {}

  struct UnderWay {
    std::shared_ptr<Part> part;
    int rank;  // the peer
    bool is_receive;
  };
  /// The outcome of a part that may not fail.
  PartDone WhenDone(std::uint64_t id, int rank, std::function<void()> then);
  void PartOver(std::uint64_t id);
  int FirstMissing() const;
  void CancelAll();

  Transport& transport_;
  std::map<std::uint64_t, UnderWay> parts_;
  std::uint64_t next_id_ = 1;
  std::size_t pending_ = 0;  // parts under way, and Start itself
  bool cancelled_ = false;
  std::optional<CommError> failure_;
};

/// A message operation among the members of a lane. Counts the bytes that it sends.
class CollectiveOperation : public MessageOperation {
 protected:
  CollectiveOperation(std::string name, const CollectiveLane& lane)
      : MessageOperation(std::move(name), *lane.transport), lane_(lane) {}

  const CollectiveLane& Lane() const { return lane_; }
  std::size_t Size() const { return static_cast<std::size_t>(lane_.size); }
  std::size_t Own() const { return static_cast<std::size_t>(lane_.rank); }

  /// Sends to a member of the lane.
  void SendTo(std::size_t member, std::uint64_t tag, std::span<const std::byte> from,
              std::function<void()> then = {}, Sending sending = Sending::kWhenAsked) {
    *lane_.sent += static_cast<std::int64_t>(from.size());
    Send(lane_.RankOf(member), tag, from, std::move(then), sending);
  }
  void ReceiveFrom(std::size_t member, std::uint64_t tag, std::span<std::byte> to,
                   std::function<void()> then = {}) {
    Receive(lane_.RankOf(member), tag, to, std::move(then));
  }

 private:
  const CollectiveLane lane_;
};

}  // namespace adaptive_train
