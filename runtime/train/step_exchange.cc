#include "runtime/train/step_exchange.h"

#include <algorithm>
#include <utility>

#include "runtime/comm/collective.h"
#include "runtime/train/all_reduce_ways.h"

namespace adaptive_train {
namespace {

/// So many elements may be on their way to their owners before backward waits.
constexpr std::size_t kOnTheirWay = 4 * ReducerOptions::kBucketElements;

/// Each micro-batch's gradients are sent off where they are sharded; ranks have unequal shares.
/// With several chunks per rank these are not complete at the same time: each chunk's go once a
/// step, and so do sums of units.
std::int64_t ExchangesOf(const Plan& plan) {
  std::int64_t most = 1;
  if (plan.shard < 2 || plan.Chunks() > 1 || plan.orders.AnyLayout() ||
      WeightVersionsOf(plan.schedule) > 1)
    return most;
  for (const RankPlan& rank : plan.ranks)
    most = std::max(most, (rank.samples + rank.micro_batch - 1) / rank.micro_batch);
  return most;
}

/// Sums inside nodes are made in place, in the host's memory.
ReducerOptions OptionsOf(const Plan& plan, const Groups& groups, const Sharding& sharding,
                         bool compresses, std::optional<UnitTrees> trees, bool on_host) {
  ReducerOptions options{.feedback = compresses,
                         .sharded = sharding.optimizer,
                         .release = sharding.gradients,
                         .trees = std::move(trees)};
  if (!options.trees && on_host) options.nodes = EvenMembersByNode(plan, groups.data.Members());
  return options;
}

}  // namespace

template <class T>
StepExchange<T>::StepExchange(const Config& config, const Plan& plan, const RankPlan& own,
                              Groups& groups, RankState<T>& state, TiedEmbedding<T>& tied,
                              LayerProfiler& profiler, StepMeasure& measure,
                              UnitGradients<T>* units)
    : plan_(plan),
      own_(own),
      local_(LocalSteps::Of(config, plan)),
      groups_(groups),
      group_(groups.data),
      state_(state),
      tied_(tied),
      profiler_(profiler),
      measure_(measure),
      units_(units),
      compression_(plan.orders.compression, config.profile.warmup_steps, DimsOf(config.model),
                   state.trained, groups.data.Size(),
                   plan.stages[static_cast<std::size_t>(own.stage)].compressed_layers),
      kept_ways_(KeptWays(plan, {})),
      hands_over_(state.HasOlderWeights()),
      each_(state.sharding.gradients && plan.Chunks() == 1 && !hands_over_),
      exchanges_(ExchangesOf(plan)),
      reducer_(
          groups.data, state.device, state.trained, state.TrainedGradients(),
          OptionsOf(plan, groups, state.sharding, compression_.MayCompress(),
                    units == nullptr ? std::nullopt : std::optional(units->Trees(tied.HeadsSums())),
                    state.device.OnHost())) {
  group_.SetWays(WaysOf(plan, own.rank));
}

template <class T>
void StepExchange<T>::Begin(std::int64_t step, double loss_scale) {
  step_ = step;
  loss_scale_ = loss_scale;
  exchanged_ = 0;
  if (compression_.ResetsBefore(step)) reducer_.ForgetResiduals();
  ExchangePolicy policy = compression_.PolicyOf(step);
  // A sharded sum of all elements takes what is held back when it begins.
  const bool takes_residuals = state_.sharding.optimizer && reducer_.HoldsBack();
  changes_residuals_ =
      compression_.ResetsBefore(step) || !policy.density.empty() || takes_residuals;
  reducer_.SetPolicy(std::move(policy));
  tied_.Begin();
  const double before = measure_.SecondsOf(Activity::kCompute);
  measure_.As(Activity::kCompute, [&] {
    if (hands_over_) state_.HandOverGradients();
    state_.ClearGradients();
    if (units_ != nullptr) units_->Begin();
    if (profiler_.Active()) state_.device.Wait();
  });
  if (profiler_.Active()) profiler_.AddUpdate(measure_.SecondsOf(Activity::kCompute) - before);
}

template <class T>
void StepExchange<T>::HandOver() {
  tied_.OnGradients(0, state_.Size());
  if (Measured()) TakeGradients(0, state_.TrainedSize());
  for (const GradientBucket& bucket : reducer_.Buckets()) AddGradients(bucket.begin, bucket.end);
}

template <class T>
void StepExchange<T>::AfterLoss(int micro_batch) {
  if (units_ != nullptr) units_->AfterLoss(micro_batch);
}

template <class T>
OnReady StepExchange<T>::OnInputGradients(int micro_batch) {
  if (units_ == nullptr) return {};
  return [this, micro_batch](std::size_t begin, std::size_t end) {
    units_->AfterInput(begin, end, micro_batch);
  };
}

/// Gradients of a chunk's last micro-batch, or sharded ones of each, are exchanged while backward
/// runs; where something is to be measured, after it, or sharded ones while it waits.
template <class T>
OnReady StepExchange<T>::OnGradients(int micro_batch, bool last) {
  early_ = {};
  if (hands_over_) return {};
  const bool exchanged = each_ || (last && (state_.sharding.gradients || !Measured()));
  if (!exchanged && !(last && tied_.Active()) && units_ == nullptr) return {};
  return [this, micro_batch, last, exchanged](std::size_t begin, std::size_t end) {
    if (units_ != nullptr) units_->AfterBackward(begin, end, micro_batch);
    if (last) tied_.OnGradients(begin, end);
    if (!exchanged) return;
    if (Measured()) TakeGradients(begin, end);
    AddGradients(begin, end);
  };
}

/// The matrix that embedding and head share would be exchanged last, and be waited for with no
/// backward beside it; what the head adds to it is ready first, and what the embedding adds can
/// wait for the next step, unless that one begins with nothing held back. Of what is sharded there
/// is a bound to how much may be on its way.
template <class T>
typename TransformerStage<T>::OnHeadReady StepExchange<T>::OnHeadGradients(bool last) {
  if (!last || hands_over_ || state_.sharding.optimizer || compression_.ResetsBefore(step_ + 1))
    return {};
  return [this](std::size_t begin, std::size_t end) -> float* {
    if (!reducer_.MayGoEarly(begin, end)) return nullptr;
    if (Measured()) TakeGradients(begin, end);
    const std::span<float> rest = reducer_.AddEarly(begin, end);
    early_ = {begin, end};
    // Layers are timed with nothing beside them.
    if (Measured())
      measure_.As(Activity::kExposedComm, [&] { Await(reducer_.Limit(0, CollectiveDeadline())); });
    return rest.data();
  };
}

template <class T>
void StepExchange<T>::EndMicroBatch(bool last) {
  if (hands_over_) return;
  if (last && Measured() && !state_.sharding.gradients) {
    TakeGradients(0, early_.begin);
    TakeGradients(early_.end, state_.TrainedSize());
    for (const GradientBucket& bucket : reducer_.Buckets()) AddGradients(bucket.begin, bucket.end);
  }
  FinishMicroBatch();
}

template <class T>
void StepExchange<T>::FinishMicroBatch() {
  if (!each_ || ++exchanged_ >= exchanges_) return;
  measure_.As(Activity::kExposedComm,
              [&] { Await(reducer_.FinishMicroBatch(CollectiveDeadline())); });
}

template <class T>
void StepExchange<T>::Finish() {
  if (Local()) return;
  while (each_ && exchanged_ < exchanges_) {
    measure_.As(Activity::kCompute, [&] {
      AddByBuckets(0, state_.TrainedSize(),
                   [this](std::size_t begin, std::size_t end) { reducer_.AddNothing(begin, end); });
    });
    FinishMicroBatch();
  }
  measure_.As(Activity::kExposedComm, [&] { Await(reducer_.Finish(CollectiveDeadline())); });
}

template <class T>
void StepExchange<T>::AddGradients(std::size_t begin, std::size_t end) {
  end = std::min(end, state_.TrainedSize());
  if (begin >= end || Local()) return;
  if (!state_.sharding.optimizer && units_ == nullptr) return reducer_.Add(begin, end);
  AddByBuckets(begin, end, [this](std::size_t from, std::size_t to) { reducer_.Add(from, to); });
  if (state_.sharding.gradients && Measured()) Limit(0);
}

/// Packed gradients, of a sharded exchange or of units' sums, take memory until they are with their
/// owners, so a layer goes bucket by bucket, each when there is room for it.
template <class T>
void StepExchange<T>::AddByBuckets(std::size_t begin, std::size_t end, const OnReady& add) {
  while (end > begin) {
    const std::size_t size = std::min(end - begin, ReducerOptions::kBucketElements);
    Limit(kOnTheirWay - size);
    add(end - size, end);
    end -= size;
  }
}

template <class T>
void StepExchange<T>::Limit(std::size_t elements) {
  measure_.As(Activity::kExposedComm,
              [&] { Await(reducer_.Limit(elements, CollectiveDeadline())); });
}

template <class T>
void StepExchange<T>::TakeGradients(std::size_t begin, std::size_t end) {
  end = std::min(end, state_.TrainedSize());
  if (begin >= end) return;
  const double to_loss = 1 / loss_scale_;
  const std::span<const float> gradients = state_.TrainedGradients();
  if (profiler_.Active()) profiler_.TakeGradients(state_.device, gradients, begin, end, to_loss);
  if (compression_.WantsGradients())
    compression_.TakeGradients(state_.device, gradients, begin, end, to_loss);
}

template <class T>
void StepExchange<T>::AverageReplicas() {
  const OptimizerArenas<T> arenas = state_.OfUpdate();
  for (const std::span<float> numbers :
       {arenas.parameters, arenas.first_moments, arenas.second_moments})
    Average(numbers);
}

/// The sum over the replicas of what each has, by its share of the batch.
template <class T>
void StepExchange<T>::Average(std::span<float> numbers) {
  const std::span<float> sums = state_.TrainedGradients();
  const double share = ShareOf(plan_, own_);
  reducer_.SetPolicy({});
  measure_.As(Activity::kCompute, [&] {
    state_.device.CopyWithin(sums.data(), numbers.data(), numbers.size_bytes());
    state_.device.Scale(static_cast<std::int64_t>(sums.size()), static_cast<float>(share),
                        sums.data());
    reducer_.Add(0, sums.size());
  });
  measure_.As(Activity::kExposedComm, [&] { Await(reducer_.Finish(CollectiveDeadline())); });
  measure_.As(Activity::kCompute, [&] {
    reducer_.Settle(true);
    state_.device.CopyWithin(numbers.data(), sums.data(), numbers.size_bytes());
  });
}

template <class T>
void StepExchange<T>::TakeShares() {
  exchanges_ = ExchangesOf(plan_);
}

template <class T>
std::optional<CompressionDecision> StepExchange<T>::EndStep(bool skipped, bool measured) {
  const GateStep took{measure_.Seconds(), measure_.SecondsOf(Activity::kExposedComm)};
  return compression_.EndStep(took, skipped, !measured, groups_);
}

template <class T>
std::map<std::string, double> StepExchange<T>::Kept(const SumOfNumbers& sum) const {
  std::map<std::string, double> kept = compression_.State(SpeaksForStage(), sum);
  kept.insert(kept_ways_.begin(), kept_ways_.end());
  return kept;
}

template <class T>
std::optional<std::string> StepExchange<T>::Restore(const std::map<std::string, double>& kept) {
  std::optional<std::string> line = compression_.Restore(kept);
  kept_ways_ = KeptWays(plan_, kept);
  group_.SetWays(WaysAfter(kept, plan_, own_.rank));
  reducer_.ResidualsRestored();
  return line;
}

template class StepExchange<float>;
template class StepExchange<kernels::BFloat16>;
template class StepExchange<kernels::Float16>;

}  // namespace adaptive_train
