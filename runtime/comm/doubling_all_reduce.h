// The all-reduce of few numbers, by recursive doubling, as a state machine on the communicator's
// thread.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/ucx_thread.h"

namespace adaptive_train {

/// In round k each rank swaps all of its numbers with the one whose number differs in bit k, and
/// both add: log2 P rounds instead of a ring's 2 (P-1), for n log2 P values sent instead of
/// 2 n (P-1)/P (Thakur, Rabenseifner and Gropp 2005, section 4.4). Where P is no power of two, the
/// ranks beyond the largest one in it hand in their numbers before and get the sums after. Both
/// ranks of a pair add the same two numbers, so all get the same bits.
template <class T>
class DoublingAllReduce final : public Operation,
                                public std::enable_shared_from_this<DoublingAllReduce<T>> {
 public:
  DoublingAllReduce(std::string name, const CollectiveLane& lane, std::span<T> data)
      : Operation(std::move(name)),
        lane_(lane),
        data_(data),
        core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(lane.size)))),
        rounds_(std::bit_width(static_cast<unsigned>(core_)) - 1) {}

  void Start() override {
    if (lane_.size == 1 || data_.empty()) return Complete(std::nullopt);
    others_.resize(data_.size());
    Next();
  }

  void Cancel(const std::string& cause) override {
    if (Done()) return;
    NoteFailure(-1, cause);
    CancelParts();
  }

 private:
  /// What a rank does in one of rounds_ + 2 steps: the first hands in, the last hands out.
  struct Move {
    int peer = -1;  // none: nothing to do
    bool sends = false, receives = false;
  };

  Move MoveOf(int step) const {
    const bool first = step == 0, last = step == rounds_ + 1;
    const bool outside = lane_.rank >= core_;
    if (first || last) {
      const int peer = outside ? lane_.rank - core_ : lane_.rank + core_;
      if (peer >= lane_.size) return {};
      return {peer, outside == first, outside == last};
    }
    if (outside) return {};
    return {lane_.rank ^ (1 << (step - 1)), true, true};
  }

  void Next() {
    while (step_ <= rounds_ + 1 && MoveOf(step_).peer < 0) ++step_;
    if (step_ > rounds_ + 1) return Complete(std::nullopt);
    const Move move = MoveOf(step_);
    const std::uint64_t tag = lane_.tag + static_cast<std::uint64_t>(step_);
    const auto bytes = data_.size_bytes();
    const auto part = [self = this->shared_from_this(),
                       peer = move.peer](const std::string& cause) { self->OnPart(peer, cause); };
    pending_ = (move.sends ? 1 : 0) + (move.receives ? 1 : 0);
    if (move.receives)
      receive_ = lane_.thread->Receive(move.peer, tag, others_.data(), bytes, part);
    if (!move.sends) return;
    *lane_.sent += static_cast<std::int64_t>(bytes);
    send_ = lane_.thread->Send(move.peer, tag, data_.data(), bytes, part);
  }

  void OnPart(int peer, const std::string& cause) {
    if (!cause.empty() && !failure_) {
      NoteFailure(peer, cause);
      CancelParts();
    }
    if (--pending_ > 0) return;
    if (failure_) return Complete(failure_);
    if (MoveOf(step_).receives) Take();
    ++step_;
    Next();
  }

  /// Handed out are sums, all else is to be added.
  void Take() {
    const bool sums = step_ == rounds_ + 1;
    for (std::size_t i = 0; i < data_.size(); ++i)
      data_[i] = sums ? others_[i] : data_[i] + others_[i];
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
  const int core_;    // ranks that double: the largest power of two in P
  const int rounds_;  // log2 of it
  std::vector<T> others_;
  std::shared_ptr<Part> send_, receive_;
  int step_ = 0;
  int pending_ = 0;
  std::optional<CommError> failure_;
};

}  // namespace adaptive_train
