// The ways to sum one bucket over ranks: whole around the ring, by the tree over units, through the
// owners, or as a sketch. Messages are in the host's memory; gradients that are not are copied there
// and back.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/host_copy.h"
#include "runtime/comm/group.h"
#include "runtime/exchange/owner_exchange.h"
#include "runtime/exchange/reducer_state.h"
#include "runtime/exchange/sketch_exchange.h"

namespace adaptive_train {

/// One bucket in one step or micro-batch. Call Start once; when the request is over, call either
/// Settle or TakeBack. The reducer's state must outlive it.
template <class T>
class BucketSum {
 public:
  virtual ~BucketSum() = default;
  /// Adds what earlier steps kept back, selects and packs, and sends. Never waits for other ranks.
  virtual Request Start(const CollectiveLane& lane) = 0;
  /// The request ended without a failure. Called once, before Settle or TakeBack.
  virtual void Arrive() {}
  /// The step's update was made, or will be after other micro-batches. The part of this rank's
  /// gradients that it lacks stays in the residuals; if the sum is not finite, it lacks all of
  /// them.
  virtual void Settle() = 0;
  /// The update was skipped: residuals get back what they contributed.
  virtual void TakeBack() = 0;
  /// True if the sum is one of the group's own collectives, which takes its lane itself.
  virtual bool TakesOwnLane() const { return false; }
  /// True if the arena receives the whole result, though a sharded rank needs only its own chunk.
  virtual bool LeavesOthers() const { return false; }

 protected:
  BucketSum(ReducerState<T>& state, std::size_t number) : state_(state), number_(number) {}
  const GradientBucket& Bucket() const { return state_.buckets[number_]; }
  GradientChunk ChunkOf(int owner) const { return state_.buckets.ChunkOf(Bucket(), owner); }
  typename ReducerState<T>::Kept& Kept() { return state_.kept[number_]; }

  ReducerState<T>& state_;
  const std::size_t number_;
};

/// Sums the whole bucket in float32 by Group::AllReduce.
template <class T>
class RingSum final : public BucketSum<T> {
 public:
  RingSum(ReducerState<T>& state, std::size_t number) : BucketSum<T>(state, number) {}
  Request Start(const CollectiveLane& lane) override;
  void Arrive() override;
  void Settle() override;
  void TakeBack() override {}  // the residuals were not used
  bool TakesOwnLane() const override { return true; }

 private:
  std::span<float> Gradients() const {
    return this->state_.gradients.subspan(this->Bucket().begin, this->Bucket().size());
  }
  kernels::HostCopy<float> copy_;
};

/// Sums the whole bucket in float32 by the tree over the step's units (TreeExchange). Nothing is held
/// back: residuals are left alone.
template <class T>
class TreeSum final : public BucketSum<T> {
 public:
  TreeSum(ReducerState<T>& state, std::size_t number) : BucketSum<T>(state, number) {}
  Request Start(const CollectiveLane& lane) override;
  void Settle() override {}
  void TakeBack() override {}
};

/// Sums through the owners of the chunks (OwnerExchange).
template <class T>
class OwnerSum final : public BucketSum<T> {
 public:
  /// `density` is for the elements of matrices; none: all elements, in float32.
  OwnerSum(ReducerState<T>& state, std::size_t number, std::optional<double> density)
      : BucketSum<T>(state, number), density_(density) {}
  Request Start(const CollectiveLane& lane) override;
  void Arrive() override;
  void Settle() override;
  void TakeBack() override;

 private:
  void Pack(OwnerExchangeOrder& order);
  void DropResiduals(const GradientChunk& chunk);

  const std::optional<double> density_;
  bool finite_ = true;  // of this rank's data
  kernels::HostCopy<float> result_;
  std::shared_ptr<OwnerExchange> exchange_;
};

/// Sums as a count sketch (SketchExchange).
template <class T>
class SketchSum final : public BucketSum<T> {
 public:
  SketchSum(ReducerState<T>& state, std::size_t number, double density)
      : BucketSum<T>(state, number), density_(density) {}
  Request Start(const CollectiveLane& lane) override;
  void Arrive() override;
  void Settle() override;
  void TakeBack() override;
  bool LeavesOthers() const override { return true; }

 private:
  void Select(SketchExchangeOrder& order);
  void AddToResiduals(const std::vector<float>& values);

  const double density_;
  kernels::HostCopy<float> result_;
  std::shared_ptr<SketchExchange> exchange_;
};

}  // namespace adaptive_train
