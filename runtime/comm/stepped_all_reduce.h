// All-reduces that go step by step, as state machines on the communicator's thread.
#pragma once

#include <algorithm>
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

/// In each step a rank sends a part of its numbers to one other and receives a part from one, which
/// it adds to its own or takes instead of them; what to do when is the algorithm. Each sum must be
/// made on one rank and passed on, or be of the same two numbers wherever it is made: then all
/// ranks get the same bits.
template <class T>
class SteppedAllReduce : public Operation,
                         public std::enable_shared_from_this<SteppedAllReduce<T>> {
 public:
  SteppedAllReduce(std::string name, const CollectiveLane& lane, std::span<T> data)
      : Operation(std::move(name)), lane_(lane), data_(data) {}

  void Start() override {
    if (lane_.size == 1 || data_.empty()) return Complete(std::nullopt);
    Step();
  }

  void Cancel(const std::string& cause) override {
    if (Done()) return;
    NoteFailure(-1, cause);
    CancelParts();
  }

 protected:
  /// What this rank does in one step; with neither of the ranks it does nothing.
  struct Move {
    int to = -1;
    std::span<T> out;
    int from = -1;
    std::span<T> in;
    bool adds = false;  // what comes is added
  };

  int Rank() const { return lane_.rank; }
  int Size() const { return lane_.size; }
  std::span<T> Data() const { return data_; }
  /// Chunk `index`, taken modulo `chunks`, of some numbers that are cut as evenly as can be.
  static std::span<T> Chunk(std::span<T> numbers, int index, int chunks) {
    const auto n = numbers.size();
    const auto p = static_cast<std::size_t>(chunks);
    const auto i = static_cast<std::size_t>((index % chunks + chunks) % chunks);
    return numbers.subspan(n * i / p, n * (i + 1) / p - n * i / p);
  }
  /// Step `step` of the 2 (size - 1) of a ring over `numbers`, as its member `place`: `size` - 1 of
  /// reduce-scatter, then as many of all-gather. In step s a member sends chunk place - s to the
  /// next one and receives chunk place - s - 1 from the one before (Patarasuk and Yuan 2009,
  /// section 3). Its `to` and `from` are places.
  static Move RingMove(std::span<T> numbers, int place, int size, int step) {
    return {(place + 1) % size, Chunk(numbers, place - step, size), (place + size - 1) % size,
            Chunk(numbers, place - step - 1, size), step < size - 1};
  }

 private:
  virtual int Steps() const = 0;
  virtual Move MoveOf(int step) const = 0;

  void Step() {
    for (move_ = {}; step_ < Steps(); ++step_) {
      move_ = MoveOf(step_);
      if (move_.to >= 0 || move_.from >= 0) break;
    }
    if (step_ == Steps()) return Complete(std::nullopt);
    const std::uint64_t tag = lane_.tag + static_cast<std::uint64_t>(step_);
    pending_ = (move_.to >= 0 ? 1 : 0) + (move_.from >= 0 ? 1 : 0);
    const auto part = [this](int peer) {
      return [self = this->shared_from_this(), peer](const std::string& cause) {
        self->OnPart(peer, cause);
      };
    };
    if (move_.from >= 0) {
      if (move_.adds) scratch_.resize(std::max(scratch_.size(), move_.in.size()));
      receive_ =
          lane_.thread->Receive(move_.from, tag, move_.adds ? scratch_.data() : move_.in.data(),
                                move_.in.size_bytes(), part(move_.from));
    }
    if (move_.to < 0) return;
    *lane_.sent += static_cast<std::int64_t>(move_.out.size_bytes());
    send_ =
        lane_.thread->Send(move_.to, tag, move_.out.data(), move_.out.size_bytes(), part(move_.to));
  }

  void OnPart(int peer, const std::string& cause) {
    if (!cause.empty() && !failure_) {
      NoteFailure(peer, cause);
      CancelParts();
    }
    if (--pending_ > 0) return;
    if (failure_) return Complete(failure_);
    for (std::size_t i = 0; move_.adds && i < move_.in.size(); ++i) move_.in[i] += scratch_[i];
    ++step_;
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
  Move move_;
  int step_ = 0;
  int pending_ = 0;
  std::optional<CommError> failure_;
};

}  // namespace adaptive_train
