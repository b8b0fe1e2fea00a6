// Load, forward, backward, reduce, step, save.
#include "runtime/train/training_loop.h"

#include <sys/resource.h>
#include <xxhash.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "runtime/measure/product_peak.h"
#include "runtime/train/all_reduce_ways.h"
#include "runtime/train/collective.h"
#include "runtime/train/data_fingerprint.h"

namespace adaptive_train {
namespace {

/// Every so many steps the replicas compare a hash of their parameters.
constexpr std::int64_t kReplicaCheckSteps = 50;

/// So many elements may be on their way to their owners before backward waits.
constexpr std::size_t kOnTheirWay = 4 * GradientReducer<float>::kBucketElements;

template <class T>
constexpr bool kScalesLoss = std::is_same_v<T, kernels::Float16>;

LrShape ShapeOf(const std::string& name) {
  if (name == "constant") return LrShape::kConstant;
  return name == "linear" ? LrShape::kLinear : LrShape::kCosine;
}

std::int64_t PeakMemoryBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

StageOptions OptionsOf(const Config& config, const Plan& plan, const RankPlan& share) {
  return {.micro_batch = share.micro_batch,
          .recompute = plan.recompute,
          .dropout = config.train.dropout,
          .seed = static_cast<std::uint64_t>(config.train.seed)};
}

/// Each micro-batch's gradients are sent off where they are sharded; ranks have unequal shares.
std::int64_t ExchangesOf(const Plan& plan) {
  std::int64_t most = 1;
  if (plan.shard < 2) return most;
  for (const RankPlan& rank : plan.ranks)
    most = std::max(most, (rank.samples + rank.micro_batch - 1) / rank.micro_batch);
  return most;
}

}  // namespace

template <class T>
TrainingLoop<T>::TrainingLoop(const Config& config, const Plan& plan, int rank,
                              Communicator& communicator, const Datasets& data,
                              TrainerEvents events)
    : config_(config),
      plan_(plan),
      share_(plan.ranks[static_cast<std::size_t>(rank)]),
      communicator_(communicator),
      data_(data),
      events_(std::move(events)),
      dims_(DimsOf(config.model)),
      layout_(dims_, StageSlice::Whole(dims_)),
      device_(share_.device.threads),
      sharded_(plan.shard > 0 && communicator.Size() > 1),
      releases_(sharded_ && plan.shard > 1),
      parameters_(device_, static_cast<std::size_t>(layout_.size()),
                  sharded_ && !std::is_same_v<T, float>),
      gradients_(device_, parameters_.size(), releases_),
      first_moments_(device_, parameters_.size(), sharded_),
      second_moments_(device_, parameters_.size(), sharded_),
      weights_(device_, std::is_same_v<T, float> ? 0 : parameters_.size()),
      stage_(dims_, StageSlice::Whole(dims_), OptionsOf(config, plan, share_), device_, Weights(),
             gradients_.span()),
      compression_(config, layout_, communicator.Size(), plan.stages.front().compressed_layers),
      exchanges_(ExchangesOf(plan)),
      reducer_(communicator, device_, layout_, gradients_.span(),
               {.feedback = compression_.MayCompress(),
                .sharded = sharded_,
                .release = releases_,
                .nodes = EvenRanksByNode(plan, 0)}),
      optimizer_(device_, layout_, communicator, reducer_.Buckets(),
                 {.sharded = sharded_, .int8 = sharded_ && config.parallel.gather == "int8"}),
      loader_(dims_, data, static_cast<std::uint64_t>(config.train.seed),
              config.train.global_batch),
      checkpointer_(config, layout_, OwnedInCheckpoint(), communicator, events_,
                    share_.device.threads,
                    OrThrow(FingerprintOf(data.train, dims_.sequence), RankExit::kSetup,
                            "reading training data")),
      schedule_{ShapeOf(config.optimizer.schedule), config.optimizer.lr,
                config.optimizer.warmup_steps, config.train.steps},
      profiler_(layout_),
      product_peak_(MeasureProductPeak(device_)),
      flops_per_token_(ModelShape::Of(dims_).TrainFlopsPerToken()) {
  // What others own stays untouched: memory that is not touched is not there.
  for (const ElementRange& range : optimizer_.Owned()) {
    InitializeParameters<float>(layout_, static_cast<std::uint64_t>(config.train.seed), range.begin,
                                range.end, parameters_.span());
    const auto begin = static_cast<std::size_t>(range.begin);
    const auto size = static_cast<std::size_t>(range.end - range.begin);
    for (auto* moments : {&first_moments_, &second_moments_})
      std::fill_n(moments->data() + begin, size, 0.0f);
  }
  if (sharded_) stage_.BeforeReading([this](std::size_t, std::size_t end) { WaitForWeights(end); });
  profiler_.Begin(config.profile.warmup_steps);
}

template <class T>
std::span<const T> TrainingLoop<T>::Weights() {
  if constexpr (std::is_same_v<T, float>) {
    return parameters_.span();
  } else {
    return weights_.span();
  }
}

/// Replicas are all alike: each writes a part.
template <class T>
std::vector<ElementRange> TrainingLoop<T>::OwnedInCheckpoint() const {
  if (sharded_) return optimizer_.Owned();
  return {PartOf(layout_.size(), share_.rank, communicator_.Size())};
}

template <class T>
TrainingArenas TrainingLoop<T>::Arenas() {
  return {parameters_.span(), first_moments_.span(), second_moments_.span(), reducer_.Residuals()};
}

template <class T>
OptimizerArenas<T> TrainingLoop<T>::ArenasOfUpdate() {
  return {parameters_.span(), gradients_.span(), first_moments_.span(), second_moments_.span(),
          weights_.span()};
}

template <class T>
CheckpointStep TrainingLoop<T>::At() const {
  CheckpointStep at;
  at.step = step_;
  at.updates = updates_;
  at.identity = CheckpointIdentity(config_);
  at.extra = compression_.State();
  at.extra["samples"] = static_cast<double>(loader_.SamplesBefore(step_ + 1));
  at.extra.merge(KeptWays(communicator_.Ways(), communicator_.Size()));
  if (kScalesLoss<T>) {
    at.extra["loss_scale"] = scaler_.scale;
    at.extra["loss_scale_good_steps"] = static_cast<double>(scaler_.good_steps);
  }
  return at;
}

template <class T>
std::int64_t TrainingLoop<T>::Resume() {
  if (const auto at = checkpointer_.Resume(Arenas(), optimizer_.Owned())) {
    step_ = at->step;
    updates_ = at->updates;
    loader_.GoOnAfter(step_, static_cast<std::int64_t>(at->extra.at("samples")));
    // A run that was in another precision so far has no scale yet.
    if (const auto scale = at->extra.find("loss_scale"); scale != at->extra.end())
      scaler_.scale = scale->second;
    if (const auto good = at->extra.find("loss_scale_good_steps"); good != at->extra.end())
      scaler_.good_steps = static_cast<std::int64_t>(good->second);
    compression_.Restore(at->extra);
    communicator_.Follow(WaysAfter(at->extra, plan_));
    reducer_.ResidualsRestored();
    // Residuals are gradients of the scaled loss; the run may have been in another precision.
    const auto scaled = at->extra.find("loss_scale");
    const double then = scaled == at->extra.end() ? 1 : scaled->second;
    const double now = kScalesLoss<T> ? scaler_.scale : 1;
    if (now != then) reducer_.Rescale(static_cast<float>(now / then));
  }
  optimizer_.MakeWeights(ArenasOfUpdate());
  return step_;
}

template <class T>
std::int64_t TrainingLoop<T>::Run() {
  while (step_ < config_.train.steps && !Step()) {
  }
  optimizer_.Finish();
  checkpointer_.SaveNow(At(), Arenas());
  return step_;
}

/// True: asked to stop.
template <class T>
bool TrainingLoop<T>::Step() {
  StepClock clock;
  RankMetrics metrics;
  metrics.step = step_ + 1;
  if (profile_asked_ && !profiler_.Active()) {
    profiler_.Begin(std::max<std::int64_t>(1, config_.profile.warmup_steps));
    profile_asked_ = false;
  }
  const bool measured = Measured();
  if (measured) clock.Time(&StepClock::exposed_comm, [&] { optimizer_.Finish(); });
  if (compression_.ResetsBefore(metrics.step)) reducer_.ForgetResiduals();
  reducer_.Follow(compression_.PolicyOf(metrics.step));
  const double loss = ForwardBackward(metrics.step, clock);
  clock.Time(&StepClock::exposed_comm, [&] { Await(reducer_.Finish(CollectiveDeadline())); });
  const Totals totals = Agree(loss, clock);
  metrics.loss =
      totals.loss / static_cast<double>(config_.train.global_batch * loader_.targets_per_sample());
  const double before_update = clock.compute;
  clock.Time(&StepClock::compute, [&] { Update(metrics); });
  if (profiler_.Active()) profiler_.AddUpdate(clock.compute - before_update);
  ++step_;
  // Before a checkpoint, which is to hold what the step has taught.
  const auto decided = compression_.EndStep({clock.Total(), clock.exposed_comm}, metrics.skipped,
                                            !measured, communicator_);
  const std::int64_t every = config_.checkpoint.every;
  if (totals.save || (every > 0 && step_ % every == 0)) checkpointer_.Ask();
  checkpointer_.BeginIfWanted(At(), Arenas());
  metrics.step_s = clock.Total();
  metrics.compute_s = clock.compute;
  metrics.exposed_comm_s = clock.exposed_comm;
  metrics.other_s = metrics.step_s - clock.compute - clock.exposed_comm;
  if (ValidationDue(step_)) metrics.validation_loss = Validate();
  if (step_ % kReplicaCheckSteps == 0) {
    optimizer_.Finish();
    CheckReplicas();
  }
  Fill(metrics);
  events_.on_step(metrics);
  if (decided && share_.rank == 0) events_.on_decision({step_, *decided});
  profile_asked_ = profile_asked_ || totals.profile;
  if (profiler_.Active()) {
    if (const auto found = profiler_.EndStep(metrics.skipped)) events_.on_layer_times(*found);
  }
  return totals.stop;
}

template <class T>
double TrainingLoop<T>::ForwardBackward(std::int64_t step, StepClock& clock) {
  clock.Time(&StepClock::compute,
             [&] { releases_ ? gradients_.Release(0, gradients_.size()) : gradients_.Clear(); });
  if (profiler_.Active()) profiler_.AddUpdate(clock.compute);
  const double targets =
      static_cast<double>(config_.train.global_batch * loader_.targets_per_sample());
  const double scale = (kScalesLoss<T> ? scaler_.scale : 1.0) / targets;
  double loss = 0;
  std::int64_t exchanged = 0;
  for (std::int64_t done = 0; done < share_.samples;) {
    const std::int64_t batch = std::min(share_.micro_batch, share_.samples - done);
    const Samples samples = loader_.Training(step, share_.first_sample + done, batch);
    done += batch;
    waited_s_ = 0;
    loss += clock.Time(&StepClock::compute,
                       [&] { return MicroBatch(samples, scale, done == share_.samples); });
    clock.compute -= waited_s_;
    clock.exposed_comm += waited_s_;
    if (releases_ && ++exchanged < exchanges_) FinishMicroBatch(clock);
  }
  while (releases_ && exchanged < exchanges_) {
    clock.Time(&StepClock::compute, [&] { reducer_.AddNothing(); });
    if (++exchanged < exchanges_) FinishMicroBatch(clock);
  }
  return loss;
}

template <class T>
void TrainingLoop<T>::FinishMicroBatch(StepClock& clock) {
  clock.Time(&StepClock::exposed_comm,
             [&] { Await(reducer_.FinishMicroBatch(CollectiveDeadline())); });
}

/// Of a pass, time that is not its own.
template <class T>
template <class Wait>
void TrainingLoop<T>::Waiting(Wait wait) {
  const auto from = StepClock::Steady::now();
  wait();
  waited_s_ += std::chrono::duration<double>(StepClock::Steady::now() - from).count();
}

/// The last step's gathering goes on beside the forward pass of the layers before.
template <class T>
void TrainingLoop<T>::WaitForWeights(std::size_t end) {
  Waiting([&] { optimizer_.FinishUpTo(end); });
}

template <class T>
double TrainingLoop<T>::MicroBatch(const Samples& samples, double scale, bool last) {
  if (profiler_.Active()) stage_.TimeInto(profiler_.NextMicroBatch(samples.batch));
  early_ = {};
  const double loss = stage_.ForwardBackward(samples, scale, Exchange(last), HeadExchange(last));
  stage_.TimeInto(nullptr);
  if (last && Measured() && !releases_) {
    TakeGradients(0, early_.begin);
    TakeGradients(early_.end, gradients_.size());
    for (const GradientBucket& bucket : reducer_.Buckets()) AddGradients(bucket.begin, bucket.end);
  }
  return loss;
}

/// Gradients of the step's last micro-batch, or sharded ones of each, are exchanged while backward
/// runs; where something is to be measured, after it, or sharded ones while it waits.
template <class T>
OnReady TrainingLoop<T>::Exchange(bool last) {
  if (releases_) {
    return [this](std::size_t begin, std::size_t end) {
      if (Measured()) TakeGradients(begin, end);
      AddGradients(begin, end);
    };
  }
  if (!last || Measured()) return {};
  return [this](std::size_t begin, std::size_t end) { AddGradients(begin, end); };
}

/// The matrix that embedding and head share would be exchanged last, and be waited for with no
/// backward beside it; what the head adds to it is ready first, and what the embedding adds can
/// wait for the next step, unless that one begins with nothing held back. Of what is sharded there
/// is a bound to how much may be on its way.
template <class T>
typename TransformerStage<T>::OnHeadReady TrainingLoop<T>::HeadExchange(bool last) {
  if (!last || sharded_ || compression_.ResetsBefore(step_ + 2)) return {};
  return [this](std::size_t begin, std::size_t end) -> float* {
    if (!reducer_.MayGoEarly(begin, end)) return nullptr;
    if (Measured()) TakeGradients(begin, end);
    const std::span<float> rest = reducer_.AddEarly(begin, end);
    early_ = {begin, end};
    // Layers are timed with nothing beside them.
    if (Measured()) Waiting([&] { Await(reducer_.Limit(0, CollectiveDeadline())); });
    return rest.data();
  };
}

/// Packed gradients of a sharded exchange take memory until they are with their owners.
template <class T>
void TrainingLoop<T>::AddGradients(std::size_t begin, std::size_t end) {
  reducer_.Add(begin, end);
  if (!sharded_) return;
  Waiting([&] {
    Await(reducer_.Limit(releases_ && Measured() ? 0 : kOnTheirWay, CollectiveDeadline()));
  });
}

template <class T>
void TrainingLoop<T>::TakeGradients(std::size_t begin, std::size_t end) {
  const double to_loss = kScalesLoss<T> ? 1 / scaler_.scale : 1.0;
  if (profiler_.Active()) profiler_.TakeGradients(gradients_.span(), begin, end, to_loss);
  if (compression_.WantsGradients())
    compression_.TakeGradients(gradients_.span(), begin, end, to_loss);
}

/// All ranks must stop, save and measure layers in the same step, so what one has been told all
/// learn here.
template <class T>
typename TrainingLoop<T>::Totals TrainingLoop<T>::Agree(double loss, StepClock& clock) {
  std::array<double, 4 + Checkpointer::kVotes> sums = {loss, events_.stop_asked() ? 1.0 : 0.0,
                                                       events_.take_checkpoint_asked() ? 1.0 : 0.0,
                                                       events_.take_profile_asked() ? 1.0 : 0.0};
  const CheckpointVotes votes = checkpointer_.Votes();
  std::copy(votes.begin(), votes.end(), sums.begin() + 4);
  clock.Time(&StepClock::exposed_comm, [&] { SumOverRanks(communicator_, sums); });
  checkpointer_.Follow(std::span(sums).subspan(4));
  return {sums[0], sums[1] > 0, sums[2] > 0, sums[3] > 0};
}

template <class T>
void TrainingLoop<T>::Update(RankMetrics& metrics) {
  metrics.lr = schedule_.At(metrics.step);
  metrics.loss_scale = kScalesLoss<T> ? scaler_.scale : 1.0;
  metrics.grad_norm = std::sqrt(optimizer_.SquaredNorm(gradients_.span())) / metrics.loss_scale;
  metrics.skipped = !std::isfinite(metrics.grad_norm);
  reducer_.Settle(!metrics.skipped);
  scaler_.Update(!metrics.skipped);
  if (kScalesLoss<T> && scaler_.scale != metrics.loss_scale)
    reducer_.Rescale(static_cast<float>(scaler_.scale / metrics.loss_scale));
  if (metrics.skipped) return;
  const OptimizerConfig& o = config_.optimizer;
  const double clip = o.clip > 0 && metrics.grad_norm > o.clip ? o.clip / metrics.grad_norm : 1.0;
  const AdamWSettings settings{o.beta1, o.beta2, 1e-8, o.weight_decay};
  ++updates_;
  optimizer_.Step(settings, ArenasOfUpdate(), updates_, metrics.lr, clip / metrics.loss_scale);
}

template <class T>
bool TrainingLoop<T>::ValidationDue(std::int64_t step) const {
  const std::int64_t every = config_.train.validate_every;
  return step == config_.train.steps || (every > 0 && step % every == 0);
}

template <class T>
double TrainingLoop<T>::Validate() {
  const std::int64_t count = std::min(config_.train.validation_samples, data_.validation.samples());
  double sum[1] = {0};
  std::vector<std::int64_t> windows;
  for (std::int64_t i = share_.rank; i < count; i += communicator_.Size()) {
    windows.push_back(i);
    if (static_cast<std::int64_t>(windows.size()) < share_.micro_batch &&
        i + communicator_.Size() < count)
      continue;
    sum[0] += stage_.Loss(loader_.Validation(windows));
    windows.clear();
  }
  SumOverRanks(communicator_, sum);
  return sum[0] / static_cast<double>(count * loader_.targets_per_sample());
}

template <class T>
void TrainingLoop<T>::CheckReplicas() {
  const std::span<const T> weights = Weights();
  const auto hash = XXH3_64bits(weights.data(), weights.size_bytes());
  // Two halves per rank: each fits a double exactly, and only its owner adds to a place.
  std::vector<double> halves(2 * static_cast<std::size_t>(communicator_.Size()), 0.0);
  halves[2 * static_cast<std::size_t>(share_.rank)] = static_cast<double>(hash >> 32);
  halves[2 * static_cast<std::size_t>(share_.rank) + 1] = static_cast<double>(hash & 0xffff'ffff);
  SumOverRanks(communicator_, halves);
  for (std::size_t rank = 1; 2 * rank < halves.size(); ++rank) {
    if (halves[2 * rank] == halves[0] && halves[2 * rank + 1] == halves[1]) continue;
    throw FatalError(RankExit::kDiverged, "comparing replicas", static_cast<int>(rank),
                     fmt::format("parameters of rank {} on {} differ from rank 0's after step {}",
                                 rank, plan_.ranks[rank].device.node, step_));
  }
}

template <class T>
void TrainingLoop<T>::Fill(RankMetrics& metrics) {
  metrics.tokens = config_.train.global_batch * dims_.sequence;
  metrics.flops = flops_per_token_ * static_cast<double>(share_.samples * dims_.sequence);
  metrics.product_peak = product_peak_;
  std::array<std::int64_t, kPurposes> sent{};
  for (std::size_t p = 0; p < kPurposes; ++p)
    sent[p] = communicator_.BytesSent(static_cast<Purpose>(p));
  auto since_last = [&](Purpose p) {
    return sent[static_cast<std::size_t>(p)] - sent_before_[static_cast<std::size_t>(p)];
  };
  metrics.grad_bytes = since_last(Purpose::kGradient);
  metrics.param_bytes = since_last(Purpose::kParameter);
  metrics.activation_bytes = since_last(Purpose::kActivation);
  sent_before_ = sent;
  metrics.density = reducer_.Figures().density;
  metrics.unpeeled = reducer_.Figures().unpeeled;
  const double comm_cpu_s = communicator_.ThreadCpuSeconds();
  metrics.comm_cpu_s = comm_cpu_s - comm_cpu_before_ + reducer_.Figures().select_cpu_s;
  comm_cpu_before_ = comm_cpu_s;
  metrics.peak_memory_bytes = PeakMemoryBytes();
}

template class TrainingLoop<float>;
template class TrainingLoop<kernels::BFloat16>;
template class TrainingLoop<kernels::Float16>;

}  // namespace adaptive_train
