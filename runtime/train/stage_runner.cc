#include "runtime/train/stage_runner.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/schedule/check.h"
#include "kernels/allocation_failure.h"
#include "runtime/fatal_error.h"

namespace adaptive_train {
namespace {

/// Nothing starts by a schedule that could not end.
Schedule Checked(Schedule schedule) {
  ScheduleNeeds needs{.reduce = true, .step = true};
  needs.communication = schedule.ranks.size() > 1;
  if (const auto use = CheckSchedule(schedule, needs); !use)
    throw FatalError(RankExit::kSetup, "schedule", FatalError::kNoPeer, use.error().message);
  return schedule;
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
      schedule_(Checked(work.schedule)),
      rank_(pipeline.Rank()),
      device_(state.device),
      loader_(loader),
      profiler_(profiler),
      measure_(measure),
      boundary_(schedule_, pipeline, PartsOf(work.options, tensor), state.device,
                BoundaryBytes(own.micro_batch), measure),
      workspace_(work.dims, work.chunks.back().has_head, work.options, state.device) {
  for (std::int64_t done = 0; done < own.samples; done += own.micro_batch)
    micro_batches_.push_back(
        {own.first_sample + done, std::min(own.micro_batch, own.samples - done)});
  assert(static_cast<int>(micro_batches_.size()) == schedule_.micro_batches);
  losses_.assign(micro_batches_.size(), 0.0);
  const std::vector<Action>& row = schedule_.ranks[static_cast<std::size_t>(rank_)];
  for (const StageSlice& slice : work.chunks) {
    const int in_flight =
        MostInFlight(row, rank_ + pipeline.Size() * static_cast<int>(chunks_.size()));
    Chunk chunk{{work.dims,
                 slice,
                 work.options,
                 state.device,
                 {state.layout, state.Weights(), state.gradients.span(), embedding_part},
                 workspace_,
                 tensor},
                {}};
    for (int i = 0; i < std::max(1, in_flight); ++i)
      chunk.states.push_back(kernels::AllocatedFor("a micro-batch's activations",
                                                   [&] { return chunk.stage.NewState(); }));
    chunks_.push_back(std::move(chunk));
  }
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
double StageRunner<T>::Run(std::int64_t step, double scale, StepExchange<T>& exchange) {
  double loss = 0;
  for (const Action& action : schedule_.ranks[static_cast<std::size_t>(rank_)]) {
    if (IsSend(action.kind)) {
      boundary_.Send(action, made_, BoundaryBytes(action));
      continue;
    }
    EndMicroBatch(exchange);
    if (IsReceive(action.kind)) boundary_.Post(action, BoundaryBytes(action));
    // A reduce is begun by its backward, layer by layer; the update follows in StepExchange.
    if (!IsCompute(action.kind)) continue;
    measure_.main_thread().TakesMicroBatch(action.micro_batch + 1);
    measure_.As(Activity::kCompute, [&] { loss += Compute(action, step, scale, exchange); });
  }
  EndMicroBatch(exchange);
  measure_.main_thread().TakesMicroBatch(0);
  return loss;
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
  const std::vector<Action>& row = schedule_.ranks[static_cast<std::size_t>(rank_)];
  const Action reduce{backward.stage, ActionKind::kReduce, backward.micro_batch};
  return std::find(row.begin(), row.end(), reduce) != row.end();
}

/// Samples are read where tokens or targets are needed.
template <class T>
Samples StageRunner<T>::Load(const StageSlice& slice, std::int64_t step,
                             const MicroBatch& micro_batch) {
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
  const auto number = static_cast<std::size_t>(action.micro_batch);
  TransformerStage<T>& stage = chunks_[chunk].stage;
  MicroBatchState<T>& state = StateOf(chunk, number);
  const Samples samples = Load(stage.slice(), step, micro_batches_[number]);
  const Pass pass{samples.batch, samples.place, options_.dropout};
  if (chunk > 0) {
    state.times = StateOf(chunk - 1, number).times;
  } else if (profiler_.Active()) {
    state.times = profiler_.NextMicroBatch(samples.batch);
  }
  if (stage.slice().has_embedding) {
    stage.ForwardTokens(state, pass, samples.tokens);
  } else {
    stage.ForwardActivations(state, pass,
                             HasOthers() ? Receive(action) : StateOf(chunk - 1, number).output());
  }
  made_ = state.output();
  return stage.slice().has_head ? stage.HeadLoss(state, samples.targets, scale) : 0;
}

template <class T>
void StageRunner<T>::Backward(const Action& action, StepExchange<T>& exchange) {
  const std::size_t chunk = ChunkOf(action);
  const auto number = static_cast<std::size_t>(action.micro_batch);
  TransformerStage<T>& stage = chunks_[chunk].stage;
  MicroBatchState<T>& state = StateOf(chunk, number);
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
    device_.CopyWithin(StateOf(chunk - 1, number).output(), made_, stage.BoundaryBytes(state));
}

template <class T>
double StageRunner<T>::Loss(const Samples& samples) {
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
