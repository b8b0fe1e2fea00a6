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

/// What the exchange of one step was, on this rank.
struct ExchangeFigures {
  double density = 1;       // elements this rank sent / all
  double select_cpu_s = 0;  // processor time of selecting and packing, in Add
  int unpeeled = 0;         // buckets whose sketch could not be peeled
};

/// Starts the exchange of a bucket of the arena as soon as all of it is final: whole around the
/// ring or, where sums are sharded, to the owners; or sparse through the owners, as the policy says
/// of its layer. What is not sent stays in the rank's residuals and is added to the next step's
/// gradient (error feedback), and so is what rounding takes from the sums, at their owner. Where
/// Group::Ways says so, what goes to owners begins inside nodes: their ranks add up their
/// gradients, each for one part of the bucket, and exchange the node's sums of that part with the
/// ranks of the same place on other nodes. What is selected and held back is then the node's. Over
/// all ranks and steps
///   gradients = what the updates got + residuals, but for float32 rounding.
/// A bucket is a BucketSum on its way. With one rank there is nothing to exchange and the policy is not looked at. One thread; the
/// arena must stay where it is.
template <class T>
class GradientReducer {
 public:
  static constexpr std::size_t kBucketElements = ReducerOptions::kBucketElements;
  using Options = ReducerOptions;

  /// What is passed by reference must outlive the reducer.
  GradientReducer(Group& group, kernels::Device<T>& device,
                  const ParameterLayout& layout, std::span<float> gradients,
                  const Options& options);

  /// How the arena is cut, and who owns what.
  const GradientBuckets& Buckets() const { return state_.buckets; }

  /// How the next step is exchanged. Between steps.
  void SetPolicy(ExchangePolicy policy) { state_.policy = std::move(policy); }
  /// Gradients in [begin, end) are final in this step. Ranges come from the arena's end to its
  /// beginning without gaps. Selects and packs, but never waits for others.
  void Add(std::size_t begin, std::size_t end);
  /// Whether gradients in [begin, end), whole buckets, may go before their turn in this step: they
  /// are compressed, and what is held back of them comes again.
  bool MayGoEarly(std::size_t begin, std::size_t end) const;
  /// Such gradients are final but for what comes last, and go now; Add will pass over them. What
  /// comes last is to be added to what is returned, for the next step: the residuals of [begin,
  /// end). Once a step.
  std::span<float> AddEarly(std::size_t begin, std::size_t end);
  /// Instead of all of a micro-batch's Adds, on a rank that has none left while others have.
  void AddNothing();
  /// Waits until at most so many elements are on their way, which bounds the memory of a sharded
  /// exchange that is slower than backward. Fails as Finish does.
  tl::expected<void, CommError> Limit(std::size_t elements, Deadline deadline);
  /// With `release`, after all of the arena was added for a micro-batch that is not the step's last
  /// one: waits, puts the own chunks' sums aside until Finish, and empties the arena for the next.
  /// All ranks must do so equally often.
  tl::expected<void, CommError> FinishMicroBatch(Deadline deadline);
  /// Waits until every gradient is the sum over all ranks, or where sums are sharded the own chunks
  /// are and the others undefined. All of the arena must have been added.
  /// Fails with the first bucket's error. Where a rank's gradients were not finite, some sum is not
  /// either, on all ranks.
  tl::expected<void, CommError> Finish(Deadline deadline);
  /// After Finish, while the sums are still in the arena: whether the step's update was made. If it
  /// was skipped, the residuals take back what was sent, and what of them is not finite is 0.
  void Settle(bool updated);
  /// Of the step that was settled last.
  const ExchangeFigures& Figures() const { return settled_; }

  /// Gradients not yet exchanged; empty without feedback.
  std::span<float> Residuals() { return state_.residuals.span(); }
  /// They were written from outside, between steps.
  void ResidualsRestored();
  /// What was held back is lost (the literal form of the paper's equation 5).
  void ForgetResiduals();
  /// From now on gradients come `factor` times as large (float16's loss scale).
  void Rescale(float factor);

 private:
  /// What an exchange is at: sums inside the node, sums over the nodes, handing them out inside the
  /// node. Where it does not begin inside nodes it has the second stage only.
  enum class Stage : std::uint8_t { kInside, kBetween, kOut };

  struct Exchange {
    std::size_t bucket = 0;
    std::unique_ptr<BucketSum<T>> sum;
    Stage stage = Stage::kBetween, last = Stage::kBetween;
    Request request = {};  // of the stage
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
  /// Calls visit(own chunk, its place in sums_) for each bucket.
  template <class Visit>
  void ForEachOwn(const Visit& visit);

  ReducerState<T> state_;
  std::size_t final_from_;                       // [final_from_, size) is final
  std::size_t next_ = 0;                         // the first bucket that Add has not come to
  std::size_t early_begin_ = 0, early_end_ = 0;  // under way before their turn
  std::vector<Exchange> exchanges_;
  std::size_t over_ = 0;          // of exchanges_, from the first
  kernels::Buffer<float> sums_;   // of the own chunks, over the step's micro-batches before this one
  bool has_sums_ = false;
  ExchangeFigures settled_;
};

}  // namespace adaptive_train
