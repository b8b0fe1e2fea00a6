// Collectives in which ranks send straight to each other, as operations on the communicator's
// thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/ucx_thread.h"

namespace adaptive_train {

/// What they share: parts under way, the first failure, and the end when no part is left.
class DirectCollective : public Operation, public std::enable_shared_from_this<DirectCollective> {
 public:
  DirectCollective(std::string name, const CollectiveLane& lane)
      : Operation(std::move(name)), lane_(lane) {}

  void Start() final {
    pending_ = 1;  // this call itself
    Begin();
    OnPart(-1, "");
  }

  void Cancel(const std::string& cause) final {
    if (Done()) return;
    Note(-1, cause);
    CancelParts();
  }

 protected:
  const CollectiveLane& Lane() const { return lane_; }
  std::size_t Size() const { return static_cast<std::size_t>(lane_.size); }
  std::size_t Own() const { return static_cast<std::size_t>(lane_.rank); }

  /// Members by their number in the lane. `number`, below 2^16, tells the messages to a member
  /// apart. What is empty is neither sent nor received.
  void Receive(std::size_t member, std::size_t number, std::span<std::byte> to) {
    if (to.empty()) return;
    ++pending_;
    const int rank = lane_.RankOf(member);
    parts_.push_back(lane_.thread->Receive(
        rank, lane_.tag + number, to.data(), to.size(),
        [this, self = shared_from_this(), rank, number](const std::string& cause) {
          if (cause.empty() && !failure_) Received(number);
          OnPart(rank, cause);
        }));
  }
  void Send(std::size_t member, std::size_t number, std::span<const std::byte> from) {
    if (from.empty()) return;
    ++pending_;
    *lane_.sent += static_cast<std::int64_t>(from.size());
    const int rank = lane_.RankOf(member);
    parts_.push_back(lane_.thread->Send(rank, lane_.tag + number, from.data(), from.size(),
                                        [this, self = shared_from_this(),
                                         rank](const std::string& cause) { OnPart(rank, cause); }));
  }

 private:
  /// Begins receives and sends.
  virtual void Begin() = 0;
  /// A message has come; may send more.
  virtual void Received(std::size_t /*number*/) {}
  /// All parts went well.
  virtual void End() {}

  void OnPart(int rank, const std::string& cause) {
    if (!cause.empty() && !failure_) {
      Note(rank, cause);
      CancelParts();
    }
    if (--pending_ > 0) return;
    if (!failure_) End();
    Complete(failure_);
  }

  void Note(int rank, const std::string& cause) {
    if (!failure_) failure_ = CommError{Name(), rank, cause};
  }

  void CancelParts() {
    for (const auto& part : parts_) lane_.thread->Cancel(part);
  }

  const CollectiveLane lane_;
  std::vector<std::shared_ptr<Part>> parts_;
  std::size_t pending_ = 0;
  std::optional<CommError> failure_;
};

}  // namespace adaptive_train
