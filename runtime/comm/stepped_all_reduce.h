// All-reduces that proceed in steps, as state machines on the executor's thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/memory_pool.h"
#include "runtime/comm/message_operation.h"

namespace adaptive_train {

/// In each step a rank sends a part of its values to one rank. It receives a part from another one
/// and adds it to its own values or replaces them. The algorithm decides the steps. Each sum must
/// be computed on one rank and passed on, or be of the same two numbers wherever it is computed.
/// Then all ranks get the same bits.
template <class T>
class SteppedAllReduce : public CollectiveOperation {
 public:
  SteppedAllReduce(std::string name, const CollectiveLane& lane, std::span<T> data)
      : CollectiveOperation(std::move(name), lane), data_(data) {}

 protected:
  /// This rank's part in one step; without `to` and `from` it does nothing.
  struct Move {
    int to = -1;
    std::span<T> out;
    int from = -1;
    std::span<T> in;
    bool adds = false;  // adds the received values; false: replaces by them
  };

  int Rank() const { return Lane().rank; }
  int Size() const { return Lane().size; }
  std::span<T> Data() const { return data_; }
  /// Chunk `index` (modulo `chunks`) of values that are cut as evenly as possible.
  static std::span<T> Chunk(std::span<T> numbers, int index, int chunks) {
    const auto n = numbers.size();
    const auto p = static_cast<std::size_t>(chunks);
    const auto i = static_cast<std::size_t>((index % chunks + chunks) % chunks);
    return numbers.subspan(n * i / p, n * (i + 1) / p - n * i / p);
  }
  /// Step `step` of the 2 (size - 1) of a ring over `numbers`, for its member `place`. The first
  /// `size` - 1 are reduce-scatter, the others all-gather. In step s a member sends chunk place - s
  /// to the next member and receives chunk place - s - 1 from the previous one (Patarasuk and Yuan
  /// 2009, section 3). `to` and `from` are places.
  static Move RingMove(std::span<T> numbers, int place, int size, int step) {
    return {(place + 1) % size, Chunk(numbers, place - step, size), (place + size - 1) % size,
            Chunk(numbers, place - step - 1, size), step < size - 1};
  }

 private:
  virtual int Steps() const = 0;
  virtual Move MoveOf(int step) const = 0;

  void Begin() override {
    if (Size() > 1 && !data_.empty()) Step();
  }

  /// Does the next step in which this rank takes part; if none is left, the operation ends.
  void Step() {
    for (move_ = {}; step_ < Steps(); ++step_) {
      move_ = MoveOf(step_);
      if (move_.to >= 0 || move_.from >= 0) break;
    }
    if (step_ == Steps()) return;
    const std::uint64_t tag = Lane().tag + static_cast<std::uint64_t>(step_);
    halves_ = (move_.to >= 0 ? 1 : 0) + (move_.from >= 0 ? 1 : 0);
    if (move_.from >= 0) {
      if (move_.adds) scratch_.resize(std::max(scratch_.size(), move_.in.size()));
      const std::span<T> in = move_.adds ? std::span(scratch_).first(move_.in.size()) : move_.in;
      ReceiveFrom(static_cast<std::size_t>(move_.from), tag, std::as_writable_bytes(in),
                  [this] { HalfOver(); });
    }
    if (move_.to < 0) return;
    SendTo(static_cast<std::size_t>(move_.to), tag, std::as_bytes(move_.out),
           [this] { HalfOver(); });
  }

  void HalfOver() {
    if (--halves_ > 0) return;
    for (std::size_t i = 0; move_.adds && i < move_.in.size(); ++i) move_.in[i] += scratch_[i];
    ++step_;
    Step();
  }

  const std::span<T> data_;
  kernels::PooledVector<T> scratch_;
  Move move_;
  int step_ = 0;  // numbers steps in the low bits of the lane's tag
  int halves_ = 0;
};

}  // namespace adaptive_train
