// The one thread that owns a rank's UCX worker: it sleeps on the worker's event descriptor, never
// spins.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/comm/request.h"

namespace adaptive_train {

/// Outcome of one point-to-point part: empty = well, otherwise the cause.
using PartDone = std::function<void(const std::string& cause)>;
/// The same of a receive, and how long the message was, in bytes; 0 if it failed.
using ReceiveDone = std::function<void(const std::string& cause, std::size_t bytes)>;

/// A part under way, so that it can be cancelled.
struct Part;

/// Threads: Post, Address and CpuSeconds from any thread; all others only from tasks that run on
/// this object's own thread. Nothing here blocks but the constructor's and destructor's
/// hand-shakes.
class UcxThread {
 public:
  /// Starts the thread and opens the transports (UCX_* variables apply). Blocks until they are
  /// open.
  static Result<std::unique_ptr<UcxThread>> Start(int rank);
  ~UcxThread();

  /// This rank's address, to be given to its peers as it is.
  const std::string& Address() const { return address_; }
  /// The peers' addresses, index = rank. Before the first Send.
  void SetPeers(std::vector<std::string> addresses);

  /// Runs `task` on the thread, in the order of the calls.
  void Post(std::function<void()> task);

  /// Processor time of the thread since its start.
  double CpuSeconds() const;

  // From tasks only. Send and the receives call `done` exactly once, later, on this thread.
  std::shared_ptr<Part> Send(int peer, std::uint64_t tag, const void* data, std::size_t bytes,
                             PartDone done);
  /// A message of exactly so many bytes: a shorter or longer one is a failure that says so. The tag
  /// alone chooses the message; `peer` is who must have sent it.
  std::shared_ptr<Part> Receive(int peer, std::uint64_t tag, void* data, std::size_t bytes,
                                PartDone done);
  /// A message of any length up to `capacity` bytes; a longer one is a failure that says so.
  std::shared_ptr<Part> ReceiveUpTo(int peer, std::uint64_t tag, void* data, std::size_t capacity,
                                    ReceiveDone done);
  /// The tag of a message that has come and that no receive has asked for, among those whose tags
  /// equal `tag` in the bits of `mask`.
  std::optional<std::uint64_t> Unclaimed(std::uint64_t tag, std::uint64_t mask) const;
  /// Ends a part early. A send is ended by closing the link to its peer.
  void Cancel(const std::shared_ptr<Part>& part);

 private:
  struct State;

  explicit UcxThread(int rank);

  std::unique_ptr<State> state_;
  std::string address_;
};

}  // namespace adaptive_train
