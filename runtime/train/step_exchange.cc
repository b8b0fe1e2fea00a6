#include "runtime/train/step_exchange.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "runtime/train/all_reduce_ways.h"
#include "runtime/train/collective.h"

namespace adaptive_train {
namespace {

/// So many elements may be on their way to their owners before backward waits.
constexpr std::size_t kOnTheirWay = 4 * ReducerOptions::kBucketElements;

template <class T>
constexpr bool kScalesLoss = std::is_same_v<T, kernels::Float16>;

/// Each micro-batch's gradients are sent off where they are sharded; ranks have unequal shares.
/// With several chunks per rank these are not complete at the same time: each chunk's go once a
/// step.
std::int64_t ExchangesOf(const Plan& plan) {
  std::int64_t most = 1;
  if (plan.shard < 2 || plan.Chunks() > 1) return most;
  for (const RankPlan& rank : plan.ranks)
    most = std::max(most, (rank.samples + rank.micro_batch - 1) / rank.micro_batch);
  return most;
}

}  // namespace

template <class T>
StepExchange<T>::StepExchange(const Config& config, const Plan& plan, const RankPlan& own,
                              Groups& groups, RankState<T>& state, LayerProfiler& profiler,
                              StepMeasure& measure)
    : config_(config.optimizer),
      plan_(plan),
      rank_(own.rank),
      groups_(groups),
      group_(groups.data),
      tensor_(groups.tensor),
      pipeline_(groups.pipeline),
      state_(state),
      profiler_(profiler),
      measure_(measure),
      compression_(plan.orders.compression, config.profile.warmup_steps, DimsOf(config.model),
                   state.trained, groups.data.Size(),
                   plan.stages[static_cast<std::size_t>(own.stage)].compressed_layers),
      kept_ways_(KeptWays(plan, {})),
      each_(state.sharding.gradients && plan.Chunks() == 1),
      exchanges_(ExchangesOf(plan)),
      reducer_(groups.data, state.device, state.trained, state.TrainedGradients(),
               {.feedback = compression_.MayCompress(),
                .sharded = state.sharding.optimizer,
                .release = state.sharding.gradients,
                .nodes = EvenMembersByNode(plan, groups.data.Members())}),
      optimizer_(state.device, state.trained, groups.data, reducer_.Buckets(),
                 {.sharded = state.sharding.optimizer,
                  .int8 = state.sharding.optimizer && plan.orders.gather == GatherFormat::kInt8}),
      tied_(config.model.tie_embeddings, groups, state, measure),
      schedule_{config.optimizer.schedule, config.optimizer.lr, config.optimizer.warmup_steps,
                config.train.steps} {
  group_.SetWays(WaysOf(plan, own.rank));
}

template <class T>
double StepExchange<T>::LossScale() const {
  return kScalesLoss<T> ? scaler_.scale : 1.0;
}

template <class T>
void StepExchange<T>::Begin(std::int64_t step) {
  step_ = step;
  exchanged_ = 0;
  // What is measured has nothing beside it.
  if (Measured()) WaitForAllWeights();
  if (compression_.ResetsBefore(step)) reducer_.ForgetResiduals();
  ExchangePolicy policy = compression_.PolicyOf(step);
  changes_residuals_ = compression_.ResetsBefore(step) || !policy.density.empty();
  reducer_.SetPolicy(std::move(policy));
  tied_.Begin();
  measure_.As(Activity::kCompute, [&] { state_.ClearGradients(); });
  if (profiler_.Active()) profiler_.AddUpdate(measure_.SecondsOf(Activity::kCompute));
}

/// The last step's gathering goes on beside the forward pass of the layers before.
template <class T>
void StepExchange<T>::WaitForWeights(std::size_t end) {
  measure_.As(Activity::kExposedComm, [&] { optimizer_.FinishUpTo(end); });
  if (state_.layout.Copy() != nullptr && end > state_.TrainedSize()) tied_.WaitForWeights();
}

template <class T>
void StepExchange<T>::MakeWeights() {
  optimizer_.MakeWeights(state_.OfUpdate());
  SendWeights();
  tied_.WaitForWeights();
}

template <class T>
void StepExchange<T>::SendWeights() {
  if (!tied_.Active()) return;
  WaitForWeights(std::min(tied_.End(), state_.TrainedSize()));
  tied_.SendWeights();
}

/// Gradients of a chunk's last micro-batch, or sharded ones of each, are exchanged while backward
/// runs; where something is to be measured, after it, or sharded ones while it waits.
template <class T>
OnReady StepExchange<T>::OnGradients(bool last) {
  early_ = {};
  const bool exchanged = each_ || (last && (state_.sharding.gradients || !Measured()));
  if (!exchanged && !(last && tied_.Active())) return {};
  return [this, last, exchanged](std::size_t begin, std::size_t end) {
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
  if (!last || state_.sharding.optimizer || compression_.ResetsBefore(step_ + 1)) return {};
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
  while (each_ && exchanged_ < exchanges_) {
    measure_.As(Activity::kCompute, [&] { reducer_.AddNothing(); });
    FinishMicroBatch();
  }
  measure_.As(Activity::kExposedComm, [&] { Await(reducer_.Finish(CollectiveDeadline())); });
}

/// Packed gradients of a sharded exchange take memory until they are with their owners, so a layer
/// goes bucket by bucket, each when there is room for it.
template <class T>
void StepExchange<T>::AddGradients(std::size_t begin, std::size_t end) {
  end = std::min(end, state_.TrainedSize());
  if (begin >= end) return;
  if (!state_.sharding.optimizer) return reducer_.Add(begin, end);
  const auto limit = [this](std::size_t elements) {
    measure_.As(Activity::kExposedComm,
                [&] { Await(reducer_.Limit(elements, CollectiveDeadline())); });
  };
  while (end > begin) {
    const std::size_t size = std::min(end - begin, ReducerOptions::kBucketElements);
    limit(kOnTheirWay - size);
    reducer_.Add(end - size, end);
    end -= size;
  }
  if (state_.sharding.gradients && Measured()) limit(0);
}

template <class T>
void StepExchange<T>::TakeGradients(std::size_t begin, std::size_t end) {
  end = std::min(end, state_.TrainedSize());
  if (begin >= end) return;
  const double to_loss = 1 / LossScale();
  const std::span<const float> gradients = state_.TrainedGradients();
  if (profiler_.Active()) profiler_.TakeGradients(gradients, begin, end, to_loss);
  if (compression_.WantsGradients()) compression_.TakeGradients(gradients, begin, end, to_loss);
}

/// Of the whole model's gradient: all ranks clip alike.
template <class T>
double StepExchange<T>::SquaredNorm() {
  double sum[1] = {optimizer_.SquaredNorm(state_.TrainedGradients())};
  measure_.As(Activity::kExposedComm, [&] {
    if (state_.sharding.optimizer) SumOverRanks(group_, sum);
    if (tensor_.Size() > 1) SumOverRanks(tensor_, sum);
    if (pipeline_.Size() > 1) SumOverRanks(pipeline_, sum);
  });
  return sum[0];
}

template <class T>
void StepExchange<T>::Update(RankMetrics& metrics) {
  const double before = measure_.SecondsOf(Activity::kCompute);
  UpdateState(metrics);
  if (profiler_.Active()) profiler_.AddUpdate(measure_.SecondsOf(Activity::kCompute) - before);
}

template <class T>
void StepExchange<T>::UpdateState(RankMetrics& metrics) {
  metrics.lr = schedule_.At(metrics.step);
  metrics.loss_scale = LossScale();
  metrics.grad_norm = std::sqrt(SquaredNorm()) / metrics.loss_scale;
  metrics.skipped = !std::isfinite(metrics.grad_norm);
  reducer_.Settle(!metrics.skipped);
  scaler_.Update(!metrics.skipped);
  if (LossScale() != metrics.loss_scale)
    reducer_.Rescale(static_cast<float>(LossScale() / metrics.loss_scale));
  if (metrics.skipped) return;
  const OptimizerConfig& o = config_;
  const double clip = o.clip > 0 && metrics.grad_norm > o.clip ? o.clip / metrics.grad_norm : 1.0;
  const AdamWSettings settings{o.beta1, o.beta2, 1e-8, o.weight_decay};
  ++updates_;
  tied_.WaitForWeights();
  optimizer_.Step(settings, state_.OfUpdate(), updates_, metrics.lr, clip / metrics.loss_scale);
  SendWeights();
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
  if (kScalesLoss<T>) {
    kept["loss_scale"] = scaler_.scale;
    kept["loss_scale_good_steps"] = static_cast<double>(scaler_.good_steps);
  }
  return kept;
}

template <class T>
std::optional<std::string> StepExchange<T>::Restore(std::int64_t updates,
                                                    const std::map<std::string, double>& kept) {
  updates_ = updates;
  // A run that was in another precision so far has no scale yet.
  const auto scale = kept.find("loss_scale"), good = kept.find("loss_scale_good_steps");
  if (scale != kept.end()) scaler_.scale = scale->second;
  if (good != kept.end()) scaler_.good_steps = static_cast<std::int64_t>(good->second);
  std::optional<std::string> line = compression_.Restore(kept);
  kept_ways_ = KeptWays(plan_, kept);
  group_.SetWays(WaysAfter(kept, plan_, rank_));
  reducer_.ResidualsRestored();
  // Residuals are gradients of the scaled loss; the run may have been in another precision.
  const double then = scale == kept.end() ? 1 : scale->second;
  if (LossScale() != then) reducer_.Rescale(static_cast<float>(LossScale() / then));
  return line;
}

template class StepExchange<float>;
template class StepExchange<kernels::BFloat16>;
template class StepExchange<kernels::Float16>;

}  // namespace adaptive_train
