// All-reduces between ranks whose numbers differ in one bit.
#pragma once

#include <bit>

#include "runtime/comm/stepped_all_reduce.h"

namespace adaptive_train {

/// The common part of recursive doubling and halving. As many ranks take part as the largest power
/// of two in P. Each other rank first hands its values to the one that many below, and gets the
/// sums afterwards.
template <class T>
class BitwiseAllReduce : public SteppedAllReduce<T> {
 public:
  BitwiseAllReduce(std::string name, const CollectiveLane& lane, std::span<T> data)
      : SteppedAllReduce<T>(std::move(name), lane, data),
        core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(lane.size)))),
        bits_(std::bit_width(static_cast<unsigned>(core_)) - 1) {}

 protected:
  using typename SteppedAllReduce<T>::Move;

  int Core() const { return core_; }
  int Bits() const { return bits_; }  // log2 of it

 private:
  virtual int CoreSteps() const = 0;
  virtual Move CoreMove(int step) const = 0;

  int Steps() const final { return CoreSteps() + 2; }
  Move MoveOf(int step) const final {
    const bool first = step == 0, last = step == CoreSteps() + 1;
    const bool outside = this->Rank() >= core_;
    if (!first && !last) return outside ? Move{} : CoreMove(step - 1);
    const int peer = outside ? this->Rank() - core_ : this->Rank() + core_;
    if (peer >= this->Size()) return {};
    Move move;
    if (outside == first) {
      move.to = peer;
      move.out = this->Data();
    } else {
      move.from = peer;
      move.in = this->Data();
      move.adds = first;
    }
    return move;
  }

  const int core_, bits_;
};

/// Recursive doubling. In round k each rank swaps all its values with the one whose number differs
/// in bit k, and both add. It takes log2 P rounds instead of a ring's 2 (P-1), and sends n log2 P
/// values instead of 2 n (P-1)/P (Thakur, Rabenseifner and Gropp 2005, section 4.4).
template <class T>
class DoublingAllReduce final : public BitwiseAllReduce<T> {
 public:
  using BitwiseAllReduce<T>::BitwiseAllReduce;

 private:
  using typename SteppedAllReduce<T>::Move;

  int CoreSteps() const override { return this->Bits(); }
  Move CoreMove(int step) const override {
    const int peer = this->Rank() ^ (1 << step);
    return {peer, this->Data(), peer, this->Data(), true};
  }
};

/// Rabenseifner's algorithm (ibid.): reduce-scatter by recursive halving, all-gather by recursive
/// doubling. It takes 2 log2 P rounds and sends 2 n (P-1)/P values per rank if P is a power of two.
/// Starting with the highest bit, a rank keeps the half that its bit selects and sends the other.
/// Then the halves come back in reverse order.
template <class T>
class HalvingAllReduce final : public BitwiseAllReduce<T> {
 public:
  using BitwiseAllReduce<T>::BitwiseAllReduce;

 private:
  using typename SteppedAllReduce<T>::Move;

  int CoreSteps() const override { return 2 * this->Bits(); }
  Move CoreMove(int step) const override {
    const bool halves = step < this->Bits();
    const int bit = halves ? this->Bits() - 1 - step : step - this->Bits();
    const int peer = this->Rank() ^ (1 << bit);
    const std::span<T> own = Kept(this->Rank(), bit), other = Kept(peer, bit);
    return halves ? Move{peer, other, peer, own, true} : Move{peer, own, peer, other, false};
  }
  /// The part of the values that a rank holds after deciding the bits from the highest down to
  /// `bit`.
  std::span<T> Kept(int rank, int bit) const {
    const auto n = this->Data().size();
    const auto parts = static_cast<std::size_t>(this->Core() >> bit);
    const auto index = static_cast<std::size_t>(rank >> bit);
    return this->Data().subspan(n * index / parts, n * (index + 1) / parts - n * index / parts);
  }
};

}  // namespace adaptive_train
