// The ring all-reduce.
#pragma once

#include "runtime/comm/stepped_all_reduce.h"

namespace adaptive_train {

/// P-1 steps of reduce-scatter, then P-1 of all-gather. Each sum is computed once, by the owner of
/// its chunk, and passed on. 2 n (P-1)/P values are sent per rank.
template <class T>
class RingAllReduce final : public SteppedAllReduce<T> {
 public:
  using SteppedAllReduce<T>::SteppedAllReduce;

 private:
  using typename SteppedAllReduce<T>::Move;

  int Steps() const override { return 2 * (this->Size() - 1); }
  Move MoveOf(int step) const override {
    return this->RingMove(this->Data(), this->Rank(), this->Size(), step);
  }
};

}  // namespace adaptive_train
