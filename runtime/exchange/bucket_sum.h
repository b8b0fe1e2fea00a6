// How one bucket is summed over ranks: whole around the ring, through the owners, or as a sketch.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "runtime/comm/group.h"
#include "runtime/exchange/owner_exchange.h"
#include "runtime/exchange/reducer_state.h"
#include "runtime/exchange/sketch_exchange.h"

namespace adaptive_train {

/// One bucket in one step or micro-batch. Start once; when the request is over, either Settle or
/// TakeBack. The reducer's state must outlive it.
template <class T>
class BucketSum {
 public:
  virtual ~BucketSum() = default;
  /// Adds what steps before kept back, selects and packs, and sends. Never waits for others.
  virtual Request Start(const CollectiveLane& lane) = 0;
  /// The step's update was made, or will be after other micro-batches: what of this rank's
  /// gradients is not in it stays in the residuals. Of a sum that is not finite that is all.
  virtual void Settle() = 0;
  /// The update was skipped: the residuals take back what they gave.
  virtual void TakeBack() = 0;
  /// The sum is one of the group's own collectives and takes its lane by itself.
  virtual bool TakesOwnLane() const { return false; }
  /// The result lies in whole in the arena, of which a sharded rank needs its own chunk only.
  virtual bool LeavesOthers() const { return false; }

 protected:
  BucketSum(ReducerState<T>& state, std::size_t number) : state_(state), number_(number) {}
  const GradientBucket& Bucket() const { return state_.buckets[number_]; }
  GradientChunk ChunkOf(int owner) const { return state_.buckets.ChunkOf(Bucket(), owner); }
  typename ReducerState<T>::Kept& Kept() { return state_.kept[number_]; }

  ReducerState<T>& state_;
  const std::size_t number_;
};

/// Whole, in float32, by Group::AllReduce.
template <class T>
class RingSum final : public BucketSum<T> {
 public:
  RingSum(ReducerState<T>& state, std::size_t number) : BucketSum<T>(state, number) {}
  Request Start(const CollectiveLane& lane) override;
  void Settle() override;
  void TakeBack() override {}  // the residuals are still there
  bool TakesOwnLane() const override { return true; }
};

/// Through the owners of its chunks (OwnerExchange).
template <class T>
class OwnerSum final : public BucketSum<T> {
 public:
  /// `density` of matrices' elements; none: all of them, in float32.
  OwnerSum(ReducerState<T>& state, std::size_t number, std::optional<double> density)
      : BucketSum<T>(state, number), density_(density) {}
  Request Start(const CollectiveLane& lane) override;
  void Settle() override;
  void TakeBack() override;

 private:
  void Pack(OwnerExchangeOrder& order);

  const std::optional<double> density_;
  bool finite_ = true;  // what this rank sends; else its residuals have it again
  std::shared_ptr<OwnerExchange> exchange_;
};

/// As a count sketch (SketchExchange).
template <class T>
class SketchSum final : public BucketSum<T> {
 public:
  SketchSum(ReducerState<T>& state, std::size_t number, double density)
      : BucketSum<T>(state, number), density_(density) {}
  Request Start(const CollectiveLane& lane) override;
  void Settle() override;
  void TakeBack() override;
  bool LeavesOthers() const override { return true; }

 private:
  void Select(SketchExchangeOrder& order);
  void AddToResiduals(const std::vector<float>& values);

  const double density_;
  std::shared_ptr<SketchExchange> exchange_;
};

}  // namespace adaptive_train
