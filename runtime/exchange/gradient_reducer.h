// Sums gradients over the data-parallel ranks while backward still runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "runtime/comm/group.h"
#include "runtime/exchange/bucket_sum.h"
#include "runtime/exchange/reducer_state.h"

namespace adaptive_train {

/// Figures of one step's exchange on this rank.
struct ExchangeFigures {
  double density = 1;       // elements this rank sent / all
  double select_cpu_s = 0;  // processor time of selecting and packing, in Add
  int unpeeled = 0;         // buckets whose sketch could not be peeled
};

/// Starts the exchange of each bucket of the arena as soon as all of it is final. The policy of its
/// layer decides the way: whole around the ring or, with sharded sums, to the owners; or sparse
/// through the owners. What is not sent stays in the rank's residuals and is added to the next
/// step's gradient (error feedback). The owner does the same with what rounding takes from the
/// sums.
///
/// If Group::Ways says so, exchanges with owners start inside nodes. The ranks of a node first sum
/// their gradients, each for one part of the bucket. They then exchange the node's sums of that
/// part with the ranks of the same place on other nodes. Selection and residuals then apply to the
/// node's sums. Over all ranks and steps
///   gradients = what the updates got + residuals, but for float32 rounding.
/// With ReducerOptions::trees all sums are made by the tree over the step's units instead.
/// A bucket is a BucketSum under way. With one rank there is nothing to exchange, and the policy is
/// ignored. One thread; the arena must not move.
template <class T>
class GradientReducer {
 public:
  static constexpr std::size_t kBucketElements = ReducerOptions::kBucketElements;
  using Options = ReducerOptions;

  /// Arguments passed by reference must outlive the reducer.
  GradientReducer(Group& group, kernels::Device<T>& device, const ParameterLayout& layout,
                  std::span<float> gradients, const Options& options);

  /// How the arena is cut, and which rank owns what.
  const GradientBuckets& Buckets() const { return state_.buckets; }

  /// How to exchange the next step. Called between steps.
  void SetPolicy(ExchangePolicy policy) { state_.policy = std::move(policy); }
  /// Gradients in [begin, end) are final in this step. Ranges come without gaps from the arena's
  /// end to its start. Selects and packs, but never waits for other ranks.
  void Add(std::size_t begin, std::size_t end);
  /// Whether gradients in [begin, end), whole buckets, may be sent early in this step: they are
  /// selected from or rounded to four bits, and what is held back of them is sent later.
  bool MayGoEarly(std::size_t begin, std::size_t end) const;
  /// Sends such gradients now, though a last contribution is missing; Add will skip them. That
  /// contribution must be added to the returned span for the next step: the residuals of [begin,
  /// end). Once a step.
  std::span<float> AddEarly(std::size_t begin, std::size_t end);
  /// Replaces the Adds of a micro-batch on a rank that has none left while others have.
  void AddNothing(std::size_t begin, std::size_t end);
  /// Waits until at most `elements` are under way. This bounds memory when a sharded exchange is
  /// slower than backward. Fails as Finish does.
  tl::expected<void, CommError> Limit(std::size_t elements, Deadline deadline);
  /// With `release`, called when all of the arena was added for a micro-batch that is not the
  /// step's last. Waits, keeps the own chunks' sums until Finish, and empties the arena for the
  /// next micro-batch. All ranks must call it equally often.
  tl::expected<void, CommError> FinishMicroBatch(Deadline deadline);
  /// Waits until every gradient is the sum over all ranks. With sharded sums only the own chunks
  /// are, and the others are undefined. All of the arena must have been added. Fails with the first
  /// bucket's error. If a rank's gradients were not finite, some sum is not finite on any rank.
  tl::expected<void, CommError> Finish(Deadline deadline);
  /// Called after Finish, while the sums are still in the arena: says whether the step's update was
  /// made. After a skip, the residuals get back what was sent, and those that are not finite become
  /// 0.
  void Settle(bool updated);
  /// Of the last settled step.
  const ExchangeFigures& Figures() const { return settled_; }

  /// Gradients that are not yet exchanged; empty without feedback.
  std::span<float> Residuals() { return state_.residuals.span(); }
  /// With one rank, which keeps none: an arena for residuals of an earlier run, which the next
  /// update takes. It is given back then.
  std::span<float> ResidualsToTake();
  /// Call after writing to Residuals() from outside, between steps.
  void ResidualsRestored();
  /// Whether anything is held back.
  bool HoldsBack() const;
  /// Drops what was held back (the literal form of the paper's equation 5).
  void ForgetResiduals();
  /// From now on gradients are `factor` times as large (float16's loss scale).
  void Rescale(float factor);

 private:
  /// The stage of an exchange: sums inside the node, sums between nodes, distributing them inside
  /// the node. Exchanges that do not start inside nodes have the second stage only.
  enum class Stage : std::uint8_t { kInside, kBetween, kOut };

  struct Exchange {
    std::size_t bucket = 0;
    std::unique_ptr<BucketSum<T>> sum;
    Stage stage = Stage::kBetween, last = Stage::kBetween;
    bool arrived = false;
    Request request = {};  // of the current stage
    std::optional<CommError> failure = std::nullopt;
    CollectiveLane between = {}, out = {};  // of later stages
  };

  const GradientBucket& BucketOf(const Exchange& exchange) const {
    return state_.buckets[exchange.bucket];
  }
  bool IsEarly(const GradientBucket& bucket) const {
    return early_begin_ <= bucket.begin && bucket.end <= early_end_;
  }
  void BeginAnew();
  void Start(std::size_t bucket);
  void StartInside(Exchange& exchange);
  void StartBetween(Exchange& exchange, const CollectiveLane& lane);
  void StartOut(Exchange& exchange);
  bool Continue(Exchange& exchange, Deadline deadline);
  std::vector<std::span<float>> Parts(const GradientBucket& bucket) const;
  void AddOthersResiduals(std::size_t bucket);
  void SettleExchanges(bool updated);
  void TakeBackSums();
  /// Calls visit(own chunk, its offset in sums_) for each bucket.
  template <class Visit>
  void ForEachOwn(const Visit& visit);

  ReducerState<T> state_;
  std::size_t final_from_;                       // [final_from_, size) is final
  std::size_t next_ = 0;                         // the first bucket that Add has not reached
  std::size_t early_begin_ = 0, early_end_ = 0;  // sent early
  std::vector<Exchange> exchanges_;
  std::size_t over_ = 0;         // leading entries of exchanges_ that are over
  kernels::Buffer<float> sums_;  // of the own chunks, over the step's earlier micro-batches
  bool has_sums_ = false;
  ExchangeFigures settled_;
};

}  // namespace adaptive_train
