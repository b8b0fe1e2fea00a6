// Tagged messages between the ranks of a job, the basis of collectives on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rank_status.h"
#include "runtime/comm/executor.h"

namespace adaptive_train {

/// The outcome of one point-to-point part: empty on success, otherwise the cause.
using PartDone = std::function<void(const std::string& cause)>;
/// The same for a receive, with the message's length in bytes; 0 on failure.
using ReceiveDone = std::function<void(const std::string& cause, std::size_t bytes)>;

/// One send or receive under way, as a handle to cancel it.
struct Part {
  virtual ~Part() = default;
};

/// How a message goes. kWhenAsked: of a long one the receiver hears first, and it comes without a
/// copy once a place is made for it (UCX's rendezvous). kAtOnce: up to 512 KiB go without that
/// question, and are copied there: on a slow link the question waits behind all that is queued.
enum class Sending : std::uint8_t { kWhenAsked, kAtOnce };

/// An executor that carries messages. Ranks are those of the whole job. Threads: Address from any
/// thread; SetPeers once, before the first Send; all others only in tasks on the executor's own
/// thread. No call blocks.
class Transport : public Executor {
 public:
  /// This rank's address for its peers: opaque bytes.
  virtual const std::string& Address() const = 0;
  /// The peers' addresses, index = rank.
  virtual void SetPeers(std::vector<std::string> addresses) = 0;

  // Send and the receives call `done` exactly once, later, on this thread. The buffer belongs to
  // the transport until then.

  virtual std::shared_ptr<Part> Send(int peer, std::uint64_t tag, const void* data,
                                     std::size_t bytes, Sending sending, PartDone done) = 0;
  /// Receives a message of up to `capacity` bytes; a longer one is a failure that says so. The tag
  /// alone selects the message; `peer` is its expected sender.
  virtual std::shared_ptr<Part> ReceiveUpTo(int peer, std::uint64_t tag, void* data,
                                            std::size_t capacity, ReceiveDone done) = 0;
  /// Receives a message of exactly `bytes`; any other length is a failure that says so.
  std::shared_ptr<Part> Receive(int peer, std::uint64_t tag, void* data, std::size_t bytes,
                                PartDone done);
  /// The tag of a received message that no receive has claimed, among tags that equal `tag` in the
  /// bits of `mask`.
  virtual std::optional<std::uint64_t> Unclaimed(std::uint64_t tag, std::uint64_t mask) const = 0;
  /// Of every peer with which this rank has had to do.
  virtual std::vector<PeerTraffic> Traffic() const = 0;
  /// From any thread, for good: nothing is carried any more, and what the main thread waits for,
  /// now or later, fails at once. Buffers of operations under way are left alone.
  void GiveUp();
  /// Where this rank is: what its MainThread says, and the traffic with kMaxStatusPeers at most.
  RankStatus Status();
  /// Ends a part early. A send is ended by closing the link to its peer.
  virtual void Cancel(const std::shared_ptr<Part>& part) = 0;

 private:
  /// Nothing is carried any more; tasks still run.
  virtual void Freeze() = 0;
};

}  // namespace adaptive_train
