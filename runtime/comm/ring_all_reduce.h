// The ring all-reduce as a state machine on the communicator's thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/ucx_thread.h"

namespace adaptive_train {

/// P-1 steps of reduce-scatter, then P-1 of all-gather. In step s rank r sends chunk r-s to its
/// right neighbour and receives chunk r-s-1 from its left one (Patarasuk and Yuan 2009, section 3).
template <class T>
class RingAllReduce final : public Operation,
                            public std::enable_shared_from_this<RingAllReduce<T>> {
 public:
  RingAllReduce(std::string name, const CollectiveLane& lane, std::span<T> data)
      : Operation(std::move(name)), lane_(lane), data_(data) {}

  void Start() override {
    if (lane_.size == 1 || data_.empty()) return Complete(std::nullopt);
    scratch_.resize(data_.size() / static_cast<std::size_t>(lane_.size) + 1);
    Step();
  }

  void Cancel(const std::string& cause) override {
    if (Done()) return;
    NoteFailure(-1, cause);
    CancelParts();
  }

 private:
  bool Reducing() const { return step_ < lane_.size - 1; }
  int Right() const { return (lane_.rank + 1) % lane_.size; }
  int Left() const { return (lane_.rank + lane_.size - 1) % lane_.size; }

  std::span<T> Chunk(int index) const {
    const auto n = data_.size();
    const auto p = static_cast<std::size_t>(lane_.size);
    const auto i = static_cast<std::size_t>((index % lane_.size + lane_.size) % lane_.size);
    return data_.subspan(n * i / p, n * (i + 1) / p - n * i / p);
  }

  // In the all-gather half a rank starts from the chunk it has just finished: r+1.
  std::span<T> Outgoing() const { return Chunk(lane_.rank - step_); }
  std::span<T> Incoming() const { return Chunk(lane_.rank - step_ - 1); }

  void Step() {
    pending_ = 2;
    const std::uint64_t tag = lane_.tag + static_cast<std::uint64_t>(step_);
    const auto out = Outgoing();
    const auto in = Incoming();
    auto self = this->shared_from_this();
    receive_ = lane_.thread->Receive(
        Left(), tag, Reducing() ? scratch_.data() : in.data(), in.size_bytes(),
        [self](const std::string& cause) { self->OnPart(self->Left(), cause); });
    send_ = lane_.thread->Send(
        Right(), tag, out.data(), out.size_bytes(),
        [self](const std::string& cause) { self->OnPart(self->Right(), cause); });
    *lane_.sent += static_cast<std::int64_t>(out.size_bytes());
  }

  void OnPart(int peer, const std::string& cause) {
    if (!cause.empty() && !failure_) {
      NoteFailure(peer, cause);
      CancelParts();
    }
    if (--pending_ > 0) return;
    if (failure_) return Complete(failure_);
    if (Reducing()) {
      T* sum = Incoming().data();
      const std::size_t n = Incoming().size();
      for (std::size_t i = 0; i < n; ++i) sum[i] += scratch_[i];
    }
    if (++step_ == 2 * (lane_.size - 1)) return Complete(std::nullopt);
    Step();
  }

  void NoteFailure(int peer, const std::string& cause) {
    if (!failure_) failure_ = CommError{Name(), peer, cause};
  }

  void CancelParts() {
    lane_.thread->Cancel(receive_);
    lane_.thread->Cancel(send_);
  }

  const CollectiveLane lane_;  // its tag's low bits number the steps
  const std::span<T> data_;
  std::vector<T> scratch_;
  std::shared_ptr<Part> send_, receive_;
  int step_ = 0;
  int pending_ = 0;
  std::optional<CommError> failure_;
};

}  // namespace adaptive_train
