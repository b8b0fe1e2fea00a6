// What all of a rank's groups stand on: one transport, and the bytes that went over it.
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

/// One rank's end of the job. Threads: one thread calls (the rank's main thread), but CpuSeconds and
/// BytesSent may be called by any. The object must outlive its groups and their Requests.
class Communicator {
 public:
  /// By UCX. Blocks until the transports are open.
  static Result<std::unique_ptr<Communicator>> Open(int rank, int size);
  Communicator(int rank, int size, std::unique_ptr<Transport> transport);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int Rank() const { return rank_; }
  int Size() const { return size_; }
  /// What the peers need to reach this rank: opaque bytes.
  const std::string& Address() const { return transport_->Address(); }
  /// Who may be reached where: index = rank, one for each rank. Once, before the first operation.
  void Connect(std::vector<std::string> addresses);
  /// All ranks of the job, in their order.
  Group& World() { return world_; }

  /// Carries the messages of operations that are not of this room's making.
  Transport& transport() { return *transport_; }
  /// Processor time of the executor's thread since it was started.
  double CpuSeconds() const { return transport_->CpuSeconds(); }
  /// Payload bytes this rank has handed to the transport for a purpose since the start.
  std::int64_t BytesSent(Purpose purpose) const {
    return sent_[static_cast<std::size_t>(purpose)].load();
  }
  /// Where they are counted.
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
