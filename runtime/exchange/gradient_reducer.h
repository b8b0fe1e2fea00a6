// Sums gradients over the data-parallel ranks while backward still runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "runtime/comm/communicator.h"
#include "runtime/exchange/exchange_policy.h"
#include "runtime/exchange/gradient_buckets.h"
#include "runtime/exchange/gradient_selection.h"
#include "runtime/exchange/owner_exchange.h"
#include "runtime/exchange/rank_groups.h"
#include "runtime/exchange/sketch_exchange.h"

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
/// Communicator::Ways says so, what goes to owners begins inside nodes: their ranks add up their
/// gradients, each for one part of the bucket, and exchange the node's sums of that part with the
/// ranks of the same place on other nodes. What is selected and held back is then the node's. Over
/// all ranks and steps
///   gradients = what the updates got + residuals, but for float32 rounding.
/// With one rank there is nothing to exchange and the policy is not looked at. One thread; the
/// arena must stay where it is.
template <class T>
class GradientReducer {
 public:
  static constexpr std::size_t kBucketElements = std::size_t{1} << 20;

  struct Options {
    bool feedback = false;  // allocates residuals, as many as gradients; a policy may then compress
    bool sharded = false;   // only a chunk's owner gets its sum
    /// With sharded: gradients of chunks of other owners leave the arena when they are on their way
    /// (ZeRO stage 2; Rajbhandari et al., 2020), so that it never holds all of them. A step may
    /// then exchange the gradients of several micro-batches one after the other.
    bool release = false;
    std::size_t bucket_elements = kBucketElements;
    /// The ranks of each node, equally many; empty if they are not, or do not share nodes.
    std::vector<std::vector<int>> nodes = {};
  };

  /// What is passed by reference must outlive the reducer.
  GradientReducer(Communicator& communicator, kernels::Device<T>& device,
                  const ParameterLayout& layout, std::span<float> gradients,
                  const Options& options);

  /// How the arena is cut, and who owns what.
  const std::vector<GradientBucket>& Buckets() const { return buckets_; }

  /// How the next step is exchanged. Between steps.
  void Follow(ExchangePolicy policy) { policy_ = std::move(policy); }
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
  std::span<float> Residuals() { return residuals_.span(); }
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
    Stage stage = Stage::kBetween, last = Stage::kBetween;
    Request request = {};  // of the stage
    std::optional<CommError> failure = std::nullopt;
    bool whole = false;  // leaves no residual behind
    // Neither: around the ring.
    std::shared_ptr<OwnerExchange> owners = nullptr;
    std::shared_ptr<SketchExchange> sketch = nullptr;
    // Of later stages.
    std::optional<double> density = std::nullopt;
    CollectiveLane between = {}, out = {};
  };

  std::string NameOf(const CollectiveLane& lane, std::size_t bucket) const;
  bool IsEarly(const GradientBucket& bucket) const {
    return early_begin_ <= bucket.begin && bucket.end <= early_end_;
  }
  void BeginAnew();
  void Start(std::size_t bucket);
  void StartRing(std::size_t bucket);
  void StartInside(std::size_t bucket, std::optional<double> density);
  void StartBetween(Exchange& exchange, const CollectiveLane& lane, std::optional<double> density);
  void StartOwners(Exchange& exchange, const CollectiveLane& lane, std::optional<double> density);
  void StartSketch(Exchange& exchange, const CollectiveLane& lane, double density);
  void StartOut(Exchange& exchange);
  bool Continue(Exchange& exchange, Deadline deadline);
  SelectedChunk Select(const GradientChunk& chunk, double density, kernels::ValueFormat format);
  bool NodeFirst() const { return groups_.Places() > 0 && !communicator_.Ways().nodes.empty(); }
  /// The owners that this rank sends to, in the order of their chunks.
  const std::vector<int>& Owners() const { return NodeFirst() ? groups_.between : groups_.all; }
  std::span<float> Together(const GradientBucket& bucket, const std::vector<int>& owners) const;
  std::vector<std::span<float>> Parts(const GradientBucket& bucket) const;
  void AddOthersResiduals(std::size_t bucket);
  void ReleaseAround(const GradientBucket& bucket, std::size_t begin, std::size_t end);
  void ReleaseOthers(const GradientBucket& bucket) {
    ReleaseAround(bucket, OwnChunk(bucket).begin, OwnChunk(bucket).end);
  }
  const GradientChunk& OwnChunk(const GradientBucket& bucket) const {
    return bucket.chunks[static_cast<std::size_t>(communicator_.Rank())];
  }
  void SettleExchanges(bool updated);
  void TakeBackSums();
  void SettleOwners(const GradientBucket& bucket, const OwnerExchange& exchange, bool updated);
  void SettleSketch(const GradientBucket& bucket, const SketchExchange& exchange, bool updated);
  void KeepRounding(const GradientChunk& own, const OwnerExchange& exchange);
  void TakeBack(const GradientBucket& bucket, const OwnerExchange& exchange);

  Communicator& communicator_;
  kernels::Device<T>& device_;
  const std::span<float> gradients_;
  const bool sharded_, release_;
  const RankGroups groups_;
  const std::vector<GradientBucket> buckets_;
  kernels::Buffer<float> residuals_;
  GradientSelection<T> selection_;
  std::vector<bool> holds_;            // [buckets]: some residual may not be 0
  std::vector<bool> others_restored_;  // [buckets]: one of a part that others select from, too
  std::vector<std::optional<std::uint64_t>> owner_lanes_, sketch_lanes_;  // [buckets], the last tag
  ExchangePolicy policy_;
  std::size_t final_from_;                       // [final_from_, size) is final
  std::size_t next_ = 0;                         // the first bucket that Add has not come to
  std::size_t early_begin_ = 0, early_end_ = 0;  // under way before their turn
  bool nothing_ = false;                         // this rank adds nothing in this micro-batch
  std::vector<Exchange> exchanges_;
  std::size_t over_ = 0;     // of exchanges_, from the first
  std::vector<float> sums_;  // of the own chunks, over the step's micro-batches before this one
  ExchangeFigures figures_;  // of this step so far
  std::int64_t selected_ = 0, added_ = 0;  // elements in this step
  ExchangeFigures settled_;
};

}  // namespace adaptive_train
