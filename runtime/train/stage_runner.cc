#include "runtime/train/stage_runner.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/schedule/check.h"
#include "core/schedule/passes.h"
#include "kernels/allocation_failure.h"
#include "runtime/fatal_error.h"

namespace adaptive_train {
namespace {

/// Nothing starts by a schedule that could not end.
Schedule Checked(Schedule schedule, int weight_versions) {
  ScheduleNeeds needs{.reduce = true, .step = true, .weight_versions = weight_versions};
  needs.communication = schedule.ranks.size() > 1;
  if (const auto use = CheckSchedule(schedule, needs); !use)
    throw FatalError(RankExit::kSetup, "schedule", FatalError::kNoPeer, use.error().message);
  return schedule;
}

std::vector<std::vector<Action>> RowsOf(const Schedule& schedule, int rank, int steps) {
  const std::vector<Action>& row = schedule.ranks[static_cast<std::size_t>(rank)];
  if (steps == 1) return {row};
  return RowsOfSteps(row, schedule.micro_batches / steps);
}

/// A rank that has its own rows alone sends all of them.
template <class T>
BoundaryParts PartsOf(const StageOptions& options, const TensorRanks<T>& tensor) {
  if (options.row_ranks > 1) return {};
  return {tensor.part, tensor.gather};
}

}  // namespace

template <class T>
StageRunner<T>::StageRunner(const StageWork& work, const RankPlan& own, Group& pipeline,
                            RankState<T>& state, SampleLoader& loader, LayerProfiler& profiler,
                            StepMeasure& measure, const TensorRanks<T>& tensor,
                            std::span<float> embedding_part)
    : dims_(work.dims),
      options_(work.options),
      part_(tensor.part),
      schedule_(Checked(work.schedule, work.steps > 1 ? 2 : 1)),
      rank_(pipeline.Rank()),
      rows_(RowsOf(schedule_, rank_, work.steps)),
      device_(state.device),
      loader_(loader),
      profiler_(profiler),
      measure_(measure),
      boundary_(schedule_, pipeline, PartsOf(work.options, tensor), state.device,
                BoundaryBytes(own.micro_batch), measure),
      workspace_(work.dims, work.chunks.back().has_head, work.options, state.device) {
  SetMicroBatches(own);
  assert(static_cast<int>(micro_batches_.size()) * work.steps == schedule_.micro_batches);
  assert(!CanGoOn() || (work.chunks.size() == 1 && state.HasOlderWeights()));
  const std::vector<Action>& row = schedule_.ranks[static_cast<std::size_t>(rank_)];
  for (const StageSlice& slice : work.chunks) {
    const int in_flight =
        MostInFlight(row, rank_ + pipeline.Size() * static_cast<int>(chunks_.size()));
    const auto stage_with = [&](std::span<const T> weights) {
      return TransformerStage<T>(work.dims, slice, work.options, state.device,
                                 {state.layout, weights, state.gradients.span(), embedding_part},
                                 workspace_, tensor);
    };
    Chunk chunk{stage_with(state.Weights()), {}, {}};
    if (CanGoOn()) chunk.older.emplace(stage_with(state.older.span()));
    halfway_ = {rank_, ActionKind::kForward,
                (static_cast<int>(micro_batches_.size()) + in_flight - 1) / 2};
    for (int i = 0; i < std::max(1, in_flight); ++i)
      chunk.states.push_back(kernels::AllocatedFor("a micro-batch's activations",
                                                   [&] { return chunk.stage.NewState(); }));
    chunks_.push_back(std::move(chunk));
  }
}

template <class T>
void StageRunner<T>::SetMicroBatches(const RankPlan& own) {
  micro_batches_.clear();
  for (std::int64_t done = 0; done < own.samples; done += own.micro_batch)
    micro_batches_.push_back(
        {own.first_sample + done, std::min(own.micro_batch, own.samples - done)});
  losses_.assign(micro_batches_.size(), 0.0);
}

template <class T>
void StageRunner<T>::TakeShare(const RankPlan& own, Schedule schedule) {
  assert(!CanGoOn());
  schedule_ = Checked(std::move(schedule), 1);
  rows_ = RowsOf(schedule_, rank_, 1);
  SetMicroBatches(own);
  assert(static_cast<int>(micro_batches_.size()) == schedule_.micro_batches);
}

template <class T>
void StageRunner<T>::BeforeReading(const OnNeeded& on_needed) {
  for (Chunk& chunk : chunks_) chunk.stage.BeforeReading(on_needed);
}

template <class T>
std::size_t StageRunner<T>::activation_bytes() const {
  std::size_t bytes = workspace_.bytes() + boundary_.bytes();
  for (const Chunk& chunk : chunks_) {
    for (const MicroBatchState<T>& state : chunk.states) bytes += state.bytes();
  }
  return bytes;
}

template <class T>
double StageRunner<T>::Run(std::int64_t step, double scale, StepExchange<T>& exchange,
                           const WithinStep& within) {
  assert(CanGoOn() == static_cast<bool>(within.before_next));
  double loss = 0;
  bool first = true;
  std::optional<bool> goes_on;
  older_ = CanGoOn() && !gone_on_;
  for (const Action& action : rows_[gone_on_ ? 1 : 0]) {
    if (IsOfNextStep(action)) {
      if (!goes_on) goes_on = GoesOn(within);
      if (!*goes_on) continue;
    }
    if (IsSend(action.kind)) {
      boundary_.Send(action, made_, BoundaryBytes(action));
      continue;
    }
    EndMicroBatch(exchange);
    if (within.halfway && action == halfway_) within.halfway();
    if (IsReceive(action.kind)) boundary_.Post(action, BoundaryBytes(action));
    // A reduce is begun by its backward, layer by layer; the update follows in StepExchange.
    if (!IsCompute(action.kind)) continue;
    measure_.main_thread().TakesMicroBatch(action.micro_batch + 1);
    measure_.As(Activity::kCompute, [&] { loss += Compute(action, step, scale, exchange); });
    if (std::exchange(first, false))
      marks_.opening_comm_s = measure_.SecondsOf(Activity::kExposedComm);
    marks_.passed_s = measure_.Seconds();
  }
  EndMicroBatch(exchange);
  measure_.main_thread().TakesMicroBatch(0);
  if (!goes_on && CanGoOn()) goes_on = GoesOn(within);
  EndStep(goes_on.value_or(false));
  return loss;
}

/// The update has made newer weights than the step's.
template <class T>
bool StageRunner<T>::GoesOn(const WithinStep& within) {
  const bool goes_on = within.before_next();
  older_ = true;
  return goes_on;
}

template <class T>
void StageRunner<T>::EndStep(bool goes_on) {
  gone_on_ = goes_on;
  first_ += micro_batches_.size();
  boundary_.EndStep(static_cast<int>(micro_batches_.size()));
}

/// Comes behind the send of what the backward made: the stage before need not wait for the
/// exchange.
template <class T>
void StageRunner<T>::EndMicroBatch(StepExchange<T>& exchange) {
  if (const auto last = std::exchange(ended_, std::nullopt)) exchange.EndMicroBatch(*last);
}

/// Gives the losses of a forward with the head, otherwise 0.
template <class T>
double StageRunner<T>::Compute(const Action& action, std::int64_t step, double scale,
                               StepExchange<T>& exchange) {
  const bool forward = action.kind == ActionKind::kForward;
  double loss = 0;
  if (forward) {
    loss = Forward(action, step, scale);
    if (chunks_[ChunkOf(action)].stage.slice().has_head) {
      losses_[static_cast<std::size_t>(action.micro_batch)] = loss;
      exchange.AfterLoss(action.micro_batch);
    }
  } else {
    Backward(action, exchange);
  }
  const bool reads = forward
                         ? action.stage > 0
                         : MakesInputGradient(action.kind) && action.stage + 1 < schedule_.stages;
  if (HasOthers() && reads) boundary_.Release(ReceiveOf(action));
  return loss;
}

template <class T>
bool StageRunner<T>::IsReduced(const Action& backward) const {
  const std::vector<Action>& row = rows_.front();
  const Action reduce{backward.stage, ActionKind::kReduce, backward.micro_batch};
  return std::find(row.begin(), row.end(), reduce) != row.end();
}

/// Samples are read where tokens or targets are needed.
template <class T>
Samples StageRunner<T>::Load(const Action& forward, std::int64_t step) {
  const StageSlice& slice = StageOf(forward).slice();
  const MicroBatch& micro_batch = MicroBatchOf(forward);
  if (IsOfNextStep(forward)) ++step;
  if (slice.has_embedding || slice.has_head) {
    return measure_.As(Activity::kOther, [&] {
      measure_.main_thread().WorksAt("reading training data");
      return loader_.Training(step, micro_batch.first_sample, micro_batch.samples);
    });
  }
  return {{}, {}, micro_batch.samples, loader_.PlaceOf(step, micro_batch.first_sample)};
}

template <class T>
double StageRunner<T>::Forward(const Action& action, std::int64_t step, double scale) {
  const std::size_t chunk = ChunkOf(action);
  TransformerStage<T>& stage = StageOf(action);
  MicroBatchState<T>& state = StateOf(chunk, action);
  const Samples samples = Load(action, step);
  const Pass pass{samples.batch, samples.place, options_.dropout};
  if (chunk > 0) {
    state.times = StateOf(chunk - 1, action).times;
  } else if (profiler_.Active()) {
    state.times = profiler_.NextMicroBatch(samples.batch);
  }
  if (stage.slice().has_embedding) {
    stage.ForwardTokens(state, pass, samples.tokens);
  } else {
    stage.ForwardActivations(state, pass,
                             HasOthers() ? Receive(action) : StateOf(chunk - 1, action).output());
  }
  made_ = state.output();
  return stage.slice().has_head ? stage.HeadLoss(state, samples.targets, scale) : 0;
}

template <class T>
void StageRunner<T>::Backward(const Action& action, StepExchange<T>& exchange) {
  const std::size_t chunk = ChunkOf(action);
  TransformerStage<T>& stage = StageOf(action);
  MicroBatchState<T>& state = StateOf(chunk, action);
  const bool last = IsReduced(action);
  if (action.kind == ActionKind::kBackwardWeight) {
    stage.BackwardWeight(state, exchange.OnGradients(action.micro_batch, last));
  } else {
    const T* d_output = stage.slice().has_head ? nullptr
                        : HasOthers()          ? Receive(action)
                                               : state.output();
    made_ =
        action.kind == ActionKind::kBackwardInput
            ? stage.BackwardInput(state, d_output, exchange.OnInputGradients(action.micro_batch))
            : stage.Backward(state, d_output, exchange.OnGradients(action.micro_batch, last),
                             exchange.OnHeadGradients(last));
  }
  if (EndsMicroBatch(action.kind)) {
    state.times = nullptr;
    if (chunk == 0) ended_ = last;
  }
  if (!MakesInputGradient(action.kind)) return;
  // The output that the next chunk has used up makes room for its gradient.
  if (!HasOthers() && chunk > 0)
    device_.CopyWithin(StateOf(chunk - 1, action).output(), made_, stage.BoundaryBytes(state));
}

template <class T>
double StageRunner<T>::Loss(const Samples& samples) {
  assert(!gone_on_);
  const T* hidden = nullptr;
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
    hidden = ForwardOnly(chunk, samples, hidden);
  Chunk& last = chunks_.back();
  if (!last.stage.slice().has_head) return 0;
  return last.stage.HeadLoss(last.states.front(), samples.targets);
}

template <class T>
const T* StageRunner<T>::ForwardOnly(std::size_t chunk, const Samples& samples, const T* before) {
  const Pass pass{samples.batch, samples.place, 0};
  const std::size_t bytes = BoundaryBytes(samples.batch);
  const int stage_number =
      rank_ + static_cast<int>(chunk) * static_cast<int>(schedule_.ranks.size());
  const Action forward{stage_number, ActionKind::kForward, 0};
  TransformerStage<T>& stage = chunks_[chunk].stage;
  MicroBatchState<T>& state = chunks_[chunk].states.front();
  const bool receives = HasOthers() && stage_number > 0;
  if (receives) boundary_.Post(ReceiveOf(forward), bytes);
  const T* output =
      stage.slice().has_embedding
          ? stage.ForwardTokens(state, pass, samples.tokens)
          : stage.ForwardActivations(state, pass, receives ? Receive(forward) : before);
  if (receives) boundary_.Release(ReceiveOf(forward));
  if (HasOthers() && !stage.slice().has_head)
    boundary_.Send({stage_number, ActionKind::kSendForward, 0}, output, bytes);
  return output;
}

template class StageRunner<float>;
template class StageRunner<kernels::BFloat16>;
template class StageRunner<kernels::Float16>;

}  // namespace adaptive_train
