// The base of all groups of a rank: one transport, and counters of the bytes sent.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/comm/group.h"
#include "runtime/comm/lane.h"
#include "runtime/comm/transport.h"

namespace adaptive_train {

/// One rank's end of the job. Threads: only the rank's main thread calls, except that any thread
/// may call CpuSeconds and BytesSent. The object must outlive its groups and their Requests.
class Communicator {
 public:
  /// Uses UCX. Blocks until the transports are open.
  static Result<std::unique_ptr<Communicator>> Open(int rank, int size);
  Communicator(int rank, int size, std::unique_ptr<Transport> transport);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int Rank() const { return rank_; }
  int Size() const { return size_; }
  /// The address that peers need to reach this rank: opaque bytes.
  const std::string& Address() const { return transport_->Address(); }
  /// The addresses of all ranks; index = rank. Called once, before the first operation.
  void Connect(std::vector<std::string> addresses);
  /// All ranks of the job, in their order.
  Group& World() { return world_; }

  /// Carries messages of operations defined in other rooms.
  Transport& transport() { return *transport_; }
  /// Processor time of the executor's thread since it was started.
  double CpuSeconds() const { return transport_->CpuSeconds(); }
  /// Payload bytes that this rank has passed to the transport for a purpose since the start.
  std::int64_t BytesSent(Purpose purpose) const {
    return sent_[static_cast<std::size_t>(purpose)].load();
  }
  /// The counter behind BytesSent.
  std::atomic<std::int64_t>& Sent(Purpose purpose) {
    return sent_[static_cast<std::size_t>(purpose)];
  }

 private:
  const int rank_;
  const int size_;
  std::array<std::atomic<std::int64_t>, kPurposes> sent_ = {};
  std::unique_ptr<Transport> transport_;
  Group world_;
};

}  // namespace adaptive_train
