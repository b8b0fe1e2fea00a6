// The all-gather of chunks that lie in one array, as an operation on the communicator's thread.
#pragma once

#include <cassert>
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

/// Every rank's array becomes the same: chunk r as rank r has it. Each chunk goes straight from its
/// owner to all, and is received in its place: (P-1) of the own chunk sent, as on a ring, in one
/// phase instead of P-1.
class AllGather final : public Operation, public std::enable_shared_from_this<AllGather> {
 public:
  /// `chunks`, [ranks], may be of different lengths, or empty; they belong to the operation until
  /// it is over.
  AllGather(std::string name, const CollectiveLane& lane, std::vector<std::span<std::byte>> chunks)
      : Operation(std::move(name)), lane_(lane), chunks_(std::move(chunks)) {
    assert(chunks_.size() == static_cast<std::size_t>(lane_.size));
  }

  void Start() override {
    pending_ = 1;  // this call itself
    const auto own = static_cast<std::size_t>(lane_.rank);
    for (std::size_t i = 1; i < chunks_.size(); ++i) Receive((own + i) % chunks_.size());
    for (std::size_t i = 1; i < chunks_.size(); ++i) Send((own + i) % chunks_.size(), chunks_[own]);
    OnPart(-1, "");
  }

  void Cancel(const std::string& cause) override {
    if (Done()) return;
    Note(-1, cause);
    CancelParts();
  }

 private:
  std::uint64_t TagOf(std::size_t source) const { return lane_.tag + source; }

  void Receive(std::size_t peer) {
    if (chunks_[peer].empty()) return;
    ++pending_;
    const int rank = static_cast<int>(peer);
    parts_.push_back(
        lane_.thread->Receive(rank, TagOf(peer), chunks_[peer].data(), chunks_[peer].size(),
                              [self = shared_from_this(), rank](const std::string& cause) {
                                self->OnPart(rank, cause);
                              }));
  }

  void Send(std::size_t peer, std::span<const std::byte> chunk) {
    if (chunk.empty()) return;
    ++pending_;
    *lane_.sent += static_cast<std::int64_t>(chunk.size());
    const int rank = static_cast<int>(peer);
    parts_.push_back(lane_.thread->Send(
        rank, TagOf(static_cast<std::size_t>(lane_.rank)), chunk.data(), chunk.size(),
        [self = shared_from_this(), rank](const std::string& cause) {
          self->OnPart(rank, cause);
        }));
  }

  void OnPart(int peer, const std::string& cause) {
    if (!cause.empty() && !failure_) {
      Note(peer, cause);
      CancelParts();
    }
    if (--pending_ == 0) Complete(failure_);
  }

  void Note(int peer, const std::string& cause) {
    if (!failure_) failure_ = CommError{Name(), peer, cause};
  }

  void CancelParts() {
    for (const auto& part : parts_) lane_.thread->Cancel(part);
  }

  const CollectiveLane lane_;
  const std::vector<std::span<std::byte>> chunks_;
  std::vector<std::shared_ptr<Part>> parts_;
  std::size_t pending_ = 0;
  std::optional<CommError> failure_;
};

}  // namespace adaptive_train
