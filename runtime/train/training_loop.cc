// Load, forward, backward, reduce, step, save.
#include "runtime/train/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/make_device.h"
#include "runtime/comm/collective.h"
#include "runtime/measure/product_peak.h"
#include "runtime/train/data_fingerprint.h"
#include "runtime/train/memory_guard.h"
#include "runtime/train/rank_work.h"
#include "runtime/train/replica_check.h"
#include "runtime/train/state_agreement.h"

namespace adaptive_train {
namespace {

/// Every so many steps the replicas compare a hash of their parameters.
constexpr std::int64_t kReplicaCheckSteps = 50;

/// The beginning of a line that is about this rank's stage.
std::string OfStage(const Plan& plan, const RankPlan& own) {
  return plan.Pipeline() == 1 ? "" : fmt::format("stage {}: ", own.stage);
}

/// The rank's device, with room for its part of the plan.
template <class T>
std::unique_ptr<kernels::Device<T>> DeviceOf(const Plan& plan, const RankPlan& own) {
  auto device = OrThrow(kernels::MakeDevice<T>(own.device), RankExit::kDevice, "device");
  if (const auto free = device->FreeBytes())
    OrThrow(CheckDeviceMemory(plan, own.rank, *free), RankExit::kDevice, "memory");
  return device;
}

/// Sums of units are whole until the end of a step: their gradients are not shared out.
Sharding ShardingOf(const Plan& plan, const Group& data) {
  const bool shared = data.Size() > 1;
  return {.optimizer = shared && plan.shard > 0,
          .gradients = shared && plan.shard > 1 && !plan.orders.AnyLayout()};
}

}  // namespace

template <class T>
TrainingLoop<T>::TrainingLoop(const Config& config, const Plan& plan, int rank,
                              Communicator& communicator, const Datasets& data,
                              TrainerEvents events, const KeptRun& kept)
    : config_(config),
      plan_(plan),
      own_(plan_.ranks[static_cast<std::size_t>(rank)]),
      data_(data),
      events_(std::move(events)),
      dims_(DimsOf(config.model)),
      slices_(SlicesOf(dims_, plan, own_)),
      layout_(dims_, slices_, {own_.tensor_rank, plan.tensor}),
      groups_(communicator, plan_),
      device_(DeviceOf<T>(plan_, own_)),
      state_(*device_, layout_, ShardingOf(plan, groups_.data), WeightVersionsOf(plan.schedule)),
      units_(plan.orders.AnyLayout()
                 ? std::make_unique<UnitGradients<T>>(plan_, own_, config.model.tie_embeddings,
                                                      ComesInHalves(plan, own_), state_)
                 : nullptr),
      loader_(dims_, data, static_cast<std::uint64_t>(config.train.seed),
              config.train.global_batch),
      profiler_(state_.trained, dims_),
      measure_(communicator),
      tensor_(groups_.tensor, TensorSums<T>::MemoryOf(groups_.tensor), *device_, measure_,
              plan.orders.AnyLayout()),
      tied_(config.model.tie_embeddings, groups_, state_, measure_, units_.get()),
      exchange_(config, plan_, own_, groups_, state_, tied_, profiler_, measure_, units_.get()),
      update_(config, plan_, own_, groups_, state_, exchange_.Reducer(), tied_, profiler_,
              measure_),
      runner_(WorkOf(config, plan, own_, slices_), own_, groups_.pipeline, state_, loader_,
              profiler_, measure_, tensor_.Ranks(),
              units_ ? units_->EmbeddingPart() : std::span<float>()),
      checkpointer_(config, state_.trained, ShareOfCheckpoint(), groups_.world, groups_.data,
                    events_, own_.device.threads,
                    OrThrow(FingerprintOf(data.train, dims_.sequence), RankExit::kSetup,
                            "reading training data")),
      keeper_(kept, plan, ArenaToKeep(), own_.device.threads, groups_.world, events_.on_notice),
      sum_([this](std::span<double> numbers) { SumOverRanks(groups_.world, numbers); }),
      product_peak_(MeasureProductPeak(*device_)),
      flops_per_token_(FlopsPerToken(dims_, plan, own_)) {
  state_.Initialize(static_cast<std::uint64_t>(config.train.seed), update_.optimizer().Owned());
  if (state_.sharding.optimizer || layout_.Copy() != nullptr)
    runner_.BeforeReading(
        [this](std::size_t /*begin*/, std::size_t end) { update_.WaitForWeights(end); });
  profiler_.Begin(config.profile.warmup_steps);
  if (tensor_.LacksMemory() && groups_.tensor.Rank() == 0)
    events_.on_notice(
        fmt::format("tensor ranks of {} share no memory: they sum by messages", own_.device.node));
}

template <class T>
KeptArena TrainingLoop<T>::ArenaToKeep() const {
  KeptArena arena;
  arena.blocks = BlocksOf(state_.trained);
  arena.parameters = ParametersOf(ParameterLayout(dims_, StageSlice::Whole(dims_)));
  arena.elements = state_.trained.size();
  if (state_.sharding.optimizer) arena.share = update_.optimizer().Share();
  return arena;
}

/// A state in memory that no checkpoint is newer than.
template <class T>
std::optional<CheckpointStep> TrainingLoop<T>::TakeUpFromMemory() {
  if (!keeper_.CanRestore()) return std::nullopt;
  const std::int64_t least = checkpointer_.NewestStep().value_or(0);
  auto at = keeper_.Restore(least,
                            {BlocksOf(state_.trained), update_.optimizer().Owned(),
                             groups_.data.Rank(), groups_.data.Size()},
                            Arenas(), [this] { return exchange_.ResidualsToTake(); });
  if (at) checkpointer_.GoOnAfter(at->step, Arenas());
  return at;
}

template <class T>
Resumed TrainingLoop<T>::Resume() {
  measure_.main_thread().WorksAt("looking for a checkpoint");
  std::optional<CheckpointStep> at = TakeUpFromMemory();
  const bool from_memory = at.has_value();
  if (!at)
    at = checkpointer_.Resume(Arenas(), update_.optimizer().Owned(),
                              [this] { return exchange_.ResidualsToTake(); });
  if (at) {
    step_ = at->step;
    loader_.GoOnAfter(step_, static_cast<std::int64_t>(at->extra.at("samples")));
    const auto line = exchange_.Restore(at->extra);
    update_.Restore(at->updates, at->extra);
    if (line && exchange_.SpeaksForStage()) events_.on_notice(OfStage(plan_, own_) + *line);
  }
  update_.MakeWeights();
  checked_ = step_;
  measure_.BeginCounting();
  return {step_, from_memory};
}

template <class T>
std::int64_t TrainingLoop<T>::Run() try {
  return Train();
} catch (const FatalError& error) {
  if (error.Code() != RankExit::kTransport || !events_.given_up()) throw;
  return SaveWithoutExchange();
}

template <class T>
std::int64_t TrainingLoop<T>::Train() {
  while (step_ < config_.train.steps && !Step()) {
  }
  AwaitReports();
  saving_ = true;
  update_.WaitForAllWeights();
  if (unsaved_) {
    checkpointer_.CompleteSave();
  } else if (!exchange_.TakesResiduals()) {
    checkpointer_.SaveNow(At(sum_), Arenas());
  } else if (own_.rank == 0) {
    events_.on_notice("nothing new to save: no update was made since the last checkpoint");
  }
  keeper_.Remove();
  return step_;
}

template <class T>
bool TrainingLoop<T>::StopUnsavedAsked() const {
  return events_.stop_unsaved_asked && events_.stop_unsaved_asked();
}

/// The step under way leaves parameters, moments and residuals alone until its update, which begins
/// when all ranks have agreed on its end. Ranks on two sides of that cannot save one state.
template <class T>
std::int64_t TrainingLoop<T>::SaveWithoutExchange() {
  const auto sum = [this](std::span<double> numbers) {
    if (!events_.sum_without_exchange(numbers))
      throw FatalError(RankExit::kCheckpoint, FailureKind::kUnknown, kSavingWithoutExchange,
                       FatalError::kNoPeer, "the launcher did not answer in time");
  };
  using Kind = OwnState::Kind;
  // What is being written is of one state.
  const bool one_state = one_state_ || StopUnsavedAsked();
  const bool can_save = whole_ && one_state && !saving_ && !exchange_.TakesResiduals();
  const Kind kind = can_save ? Kind::kOfStep : one_state ? Kind::kBetween : Kind::kWithinRound;
  RequireOneState(own_.rank, groups_.world.Size(), {kind, step_}, sum);
  // Asked of all before the exchange was given up.
  if (StopUnsavedAsked())
    checkpointer_.CompleteSaveBy(sum);
  else
    checkpointer_.SaveNowBy(sum, At(sum), Arenas());
  keeper_.Remove();
  return step_;
}

/// True: asked to stop.
template <class T>
bool TrainingLoop<T>::Step() {
  if (runner_.CanGoOn()) return StepIntoNext();
  Begin();
  const std::int64_t step = step_ + 1;
  exchange_.Begin(step, update_.LossScale());
  whole_ = !exchange_.ChangesResiduals();
  const double loss = runner_.Run(step, update_.LossScale() / Targets(), exchange_);
  if (runner_.HasOthers()) marks_ = runner_.Marks();
  BeginSettling(loss);
  Settle();
  return Stops();
}

/// Without a flush: what follows a step's backwards goes on beside the next one's. Its update is
/// there before the forwards that read it, which are those of the step after the next.
template <class T>
bool TrainingLoop<T>::StepIntoNext() {
  const std::int64_t step = step_ + (exchanged_loss_ ? 2 : 1);
  if (!exchanged_loss_) Begin();
  const WithinStep within{.halfway = [this] { BeginSettlingBefore(); },
                          .before_next = [this, step] { return SettleBefore(step); }};
  exchanged_loss_ = runner_.Run(step, update_.LossScale() / Targets(), exchange_, within);
  exchange_.Begin(step, update_.LossScale());
  whole_ = !exchange_.ChangesResiduals();
  exchange_.HandOver();
  if (runner_.HasGoneOn()) return false;
  BeginSettling(*std::exchange(exchanged_loss_, std::nullopt));
  Settle();
  return Stops();
}

/// The step before, if it is not settled yet.
template <class T>
void TrainingLoop<T>::BeginSettlingBefore() {
  if (exchanged_loss_) BeginSettling(*exchanged_loss_);
}

/// The same, to its end. Gives whether the step after `step` may begin.
template <class T>
bool TrainingLoop<T>::SettleBefore(std::int64_t step) {
  if (std::exchange(exchanged_loss_, std::nullopt)) {
    Settle();
    Begin();
  }
  return GoesOn(step);
}

template <class T>
void TrainingLoop<T>::Begin() {
  measure_.Begin(events_.begin_step ? events_.begin_step(step_ + 1) : 1);
  measure_.main_thread().BeginsStep(step_ + 1);
  if (profile_asked_ && !profiler_.Active() && !runner_.HasGoneOn()) {
    profiler_.Begin(std::max<std::int64_t>(1, config_.profile.warmup_steps));
    profile_asked_ = false;
  }
  measured_ = exchange_.Measured();
  if (measured_) update_.WaitForAllWeights();  // what is measured has nothing beside it
}

/// All ranks must stop, save and measure layers in the same step, and clip alike, so what one knows
/// all learn in one sum.
template <class T>
void TrainingLoop<T>::BeginSettling(double loss) {
  exchange_.Finish();
  if (!new_shares_) new_shares_ = events_.take_new_shares();
  sums_ = {CountedOnce(loss),
           events_.stop_asked() ? 1.0 : 0.0,
           events_.take_checkpoint_asked() ? 1.0 : 0.0,
           events_.take_profile_asked() ? 1.0 : 0.0,
           new_shares_ ? 1.0 : 0.0,
           StopUnsavedAsked() ? 1.0 : 0.0,
           events_.end_round_asked && events_.end_round_asked() ? 1.0 : 0.0};
  const CheckpointVotes votes = checkpointer_.Votes();
  sums_.insert(sums_.end(), votes.begin(), votes.end());
  first_square_ = sums_.size();
  const auto squares =
      measure_.As(Activity::kCompute, [&] { return update_.Squares(exchange_.Local()); });
  sums_.insert(sums_.end(), squares.begin(), squares.end());
  first_unit_ = sums_.size();
  AppendLossesOfUnits();
  // Once all have agreed, others copy this step over the one before the last, or complete a save of
  // the last. A launcher that knew of neither would go on with a gap in what it reports.
  AwaitReports();
  agreement_ = groups_.world.AllReduce(Purpose::kStatistic, std::span<double>(sums_));
}

template <class T>
void TrainingLoop<T>::AwaitReports() const {
  if (events_.await_reports) events_.await_reports();
}

template <class T>
typename TrainingLoop<T>::Totals TrainingLoop<T>::Agreed() {
  measure_.As(Activity::kExposedComm, [&] { Await(agreement_.Wait(CollectiveDeadline())); });
  whole_ = false;
  const std::span<const double> sums = sums_;
  checkpointer_.Follow(sums.subspan(7, Checkpointer::kVotes));
  const auto squares = sums.subspan(first_square_, first_unit_ - first_square_);
  return {.loss = units_ ? SumOfUnits(sums.subspan(first_unit_)) : sums[0],
          .stop = sums[1] > 0,
          .unsaved = sums[5] > 0,
          .end_round = sums[6] > 0,
          .save = sums[2] > 0,
          .profile = sums[3] > 0,
          .shares = sums[4] == groups_.world.Size(),
          .squares = {squares.begin(), squares.end()}};
}

/// Norm, update, and all that is told and kept of the step.
template <class T>
void TrainingLoop<T>::Settle() {
  const Totals totals = Agreed();
  RankMetrics metrics;
  if (const auto marks = std::exchange(marks_, std::nullopt)) {
    metrics.opening_comm_s = marks->opening_comm_s;
    metrics.settling_s = measure_.Seconds() - marks->passed_s;
  }
  metrics.step = step_ + 1;
  metrics.loss = totals.loss / Targets();
  measure_.As(Activity::kCompute, [&] { update_.Make(totals.squares, metrics); });
  ++step_;
  one_state_ = !exchange_.Local() || Averages(totals.end_round);

  // Before a checkpoint, which is to hold what the step has taught.
  const auto decided = exchange_.EndStep(metrics.skipped, measured_);
  whole_ = true;
  unsaved_ = unsaved_ || totals.unsaved;
  if (!unsaved_) Save(totals.save);
  KeepInMemory();
  stop_asked_ = stop_asked_ || totals.stop;
  profile_asked_ = profile_asked_ || totals.profile;
  Report(metrics);
  if (decided) Tell(*decided);
  if (profiler_.Active())
    if (const auto found = profiler_.EndStep(metrics.skipped)) events_.on_layer_times(*found);
  if (totals.shares) TakeShares();
}

/// Before the next step: all ranks do so after the same one.
template <class T>
void TrainingLoop<T>::TakeShares() {
  const Plan plan =
      OrThrow(WithShares(plan_, *new_shares_), RankExit::kSetup, "taking up new shares");
  std::copy(plan.ranks.begin(), plan.ranks.end(), plan_.ranks.begin());  // own_ is one of them
  new_shares_.reset();
  runner_.TakeShare(own_, ScheduleOf(plan_, own_));
  exchange_.TakeShares();
}

/// Without a flush: whether the step after `step` begins in it. A pipeline is empty before what is
/// not training, layers are timed in whole steps, and what is begun is ended.
template <class T>
bool TrainingLoop<T>::GoesOn(std::int64_t step) const {
  return !ValidationDueAfter(step) && !profiler_.Active() && !profile_asked_ && !stop_asked_;
}

/// Tensor ranks have the same losses.
template <class T>
double TrainingLoop<T>::CountedOnce(double loss) const {
  return groups_.tensor.Rank() == 0 ? loss : 0;
}

/// Of all units of the step; 0 where they are another rank's. Nothing where the layout may change
/// bits.
template <class T>
void TrainingLoop<T>::AppendLossesOfUnits() {
  if (!units_) return;
  const std::size_t own = sums_.size() + static_cast<std::size_t>(UnitsOf(own_).begin);
  sums_.resize(sums_.size() + static_cast<std::size_t>(plan_.global_batch / own_.micro_batch));
  const std::span<const double> losses = runner_.Losses();
  for (std::size_t i = 0; i < losses.size(); ++i) sums_[own + i] = CountedOnce(losses[i]);
}

/// After a local step: whether replicas have become one state, as at the end of a round. Saves, and
/// a stop that is to save, wait for one where there is time: a run that goes on there has the bits of
/// one that was not stopped.
template <class T>
bool TrainingLoop<T>::Averages(bool end_round) {
  if (!end_round && !exchange_.EndsRound() && !ValidationDueAfter(step_)) return false;
  measure_.main_thread().WorksAt("averaging replicas");
  exchange_.AverageReplicas();
  update_.MakeWeights();
  return true;
}

template <class T>
void TrainingLoop<T>::Save(bool asked) {
  const std::int64_t every = config_.checkpoint.every;
  if (asked || (every > 0 && step_ % every == 0)) checkpointer_.Ask();
  // Residuals that no update has taken yet are in the last checkpoint alone.
  if (one_state_ && checkpointer_.Wanted() && !exchange_.TakesResiduals())
    checkpointer_.Begin(At(sum_), Arenas());
}

/// Before the step is reported: what is reported is kept.
template <class T>
void TrainingLoop<T>::KeepInMemory() {
  if (exchange_.TakesResiduals()) return;  // no update has taken them yet
  const TrainingArenas arenas = Arenas();
  keeper_.AfterStep(measure_.Seconds(), one_state_, [this] { return At(sum_); },
                    {arenas.memory, {arenas[0], arenas[1], arenas[2], arenas[kResiduals]}});
}

/// One rank speaks for all that have decided together.
template <class T>
void TrainingLoop<T>::Tell(const CompressionDecision& decision) {
  if (decision.of_model ? own_.rank == 0 : exchange_.SpeaksForStage())
    events_.on_decision(
        {step_, decision.of_model ? decision.text : OfStage(plan_, own_) + decision.text});
}

/// The step's times end here; what follows in it is not training.
template <class T>
void TrainingLoop<T>::Report(RankMetrics& metrics) {
  measure_.FillTimes(metrics);
  metrics.tokens = config_.train.global_batch * dims_.sequence;
  metrics.replica = own_.replica;
  metrics.samples = own_.samples;
  metrics.flops = flops_per_token_ * static_cast<double>(own_.samples * dims_.sequence);
  product_peak_ = RaisedPeak(product_peak_, metrics.flops, metrics.compute_s);
  metrics.product_peak = product_peak_;
  metrics.density = exchange_.Local() ? 0 : exchange_.Figures().density;
  metrics.gradient_entries = state_.trained.size();
  metrics.unpeeled = exchange_.Figures().unpeeled;
  measure_.Fill(metrics, exchange_.Figures().select_cpu_s);
  if (ValidationDueAfter(step_)) metrics.validation_loss = Validate();
  if (one_state_ && step_ / kReplicaCheckSteps > checked_ / kReplicaCheckSteps) CheckSameWeights();
  events_.on_step(metrics);
}

template <class T>
double TrainingLoop<T>::Targets() const {
  return static_cast<double>(config_.train.global_batch * loader_.targets_per_sample());
}

template <class T>
bool TrainingLoop<T>::ValidationDueAfter(std::int64_t step) const {
  const std::int64_t every = config_.train.validate_every;
  return step == config_.train.steps || (every > 0 && step % every == 0);
}

/// Replicas share out the windows.
template <class T>
double TrainingLoop<T>::Validate() {
  measure_.main_thread().WorksAt("validating");
  const std::int64_t count = std::min(config_.train.validation_samples, data_.validation.samples());
  double sum[1] = {0};
  std::vector<std::int64_t> windows;
  const Group& replicas = groups_.data;
  for (std::int64_t i = replicas.Rank(); i < count; i += replicas.Size()) {
    windows.push_back(i);
    if (static_cast<std::int64_t>(windows.size()) < own_.micro_batch && i + replicas.Size() < count)
      continue;
    sum[0] += CountedOnce(runner_.Loss(loader_.Validation(windows)));
    windows.clear();
  }
  measure_.Forget(Purpose::kActivation);
  SumOverRanks(groups_.world, sum);
  return sum[0] / static_cast<double>(count * loader_.targets_per_sample());
}

template <class T>
void TrainingLoop<T>::CheckSameWeights() {
  checked_ = step_;
  update_.WaitForAllWeights();
  CheckReplicas<T>(groups_, plan_, layout_, *device_, state_.Weights(), step_);
}

template <class T>
CheckpointStep TrainingLoop<T>::At(const SumOfNumbers& sum) const {
  CheckpointStep at;
  at.step = step_;
  at.updates = update_.Updates();
  at.identity = CheckpointIdentity(config_);
  at.extra = exchange_.Kept(sum);
  at.extra.merge(update_.Kept());
  at.extra["samples"] = static_cast<double>(loader_.SamplesBefore(step_ + 1));
  return at;
}

/// Replicas that are not sharded are all alike: each writes a part.
template <class T>
ArenaShare TrainingLoop<T>::ShareOfCheckpoint() const {
  if (state_.sharding.optimizer) return update_.optimizer().Share();
  return {BucketRule::Whole(state_.trained.size(), groups_.data.Size()), groups_.data.Rank()};
}

template class TrainingLoop<float>;
template class TrainingLoop<kernels::BFloat16>;
template class TrainingLoop<kernels::Float16>;

}  // namespace adaptive_train
