#include "runtime/train/stage_runner.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "kernels/allocation_failure.h"

namespace adaptive_train {

template <class T>
StageRunner<T>::StageRunner(const StageWork& work, const RankPlan& own, Group& pipeline,
                            RankState<T>& state, SampleLoader& loader, LayerProfiler& profiler,
                            StepMeasure& measure)
    : dims_(work.dims),
      options_(work.options),
      schedule_(work.schedule),
      ranks_(pipeline.Size()),
      device_(state.device),
      loader_(loader),
      profiler_(profiler),
      measure_(measure),
      boundary_(pipeline, state.device, BoundaryBytes(own.micro_batch), measure),
      workspace_(work.dims, work.chunks.back().has_head, work.options, state.device) {
  for (std::int64_t done = 0; done < own.samples; done += own.micro_batch) {
    micro_batches_.push_back(
        {own.first_sample + done, std::min(own.micro_batch, own.samples - done)});
    boundary_bytes_.push_back(BoundaryBytes(micro_batches_.back().samples));
  }
  for (const StageSlice& slice : work.chunks) {
    const int in_flight =
        MostInFlight(schedule_, pipeline.Rank() + ranks_ * static_cast<int>(chunks_.size()));
    Chunk chunk{{work.dims,
                 slice,
                 work.options,
                 state.device,
                 {state.layout, state.Weights(), state.gradients.span()},
                 workspace_},
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
  boundary_.Begin(boundary_bytes_, true);
  for (const Action& action : schedule_) {
    measure_.main_thread().TakesMicroBatch(action.micro_batch + 1);
    measure_.As(Activity::kCompute, [&] {
      if (action.kind == ActionKind::kForward) {
        loss += Forward(action, step, scale);
      } else {
        Backward(action, exchange);
      }
    });
  }
  measure_.main_thread().TakesMicroBatch(0);
  return loss;
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

/// Gives the losses with the head, otherwise 0.
template <class T>
double StageRunner<T>::Forward(const Action& action, std::int64_t step, double scale) {
  const auto chunk = static_cast<std::size_t>(action.stage / ranks_);
  const auto number = static_cast<std::size_t>(action.micro_batch);
  const MicroBatch& micro_batch = micro_batches_[number];
  TransformerStage<T>& stage = chunks_[chunk].stage;
  MicroBatchState<T>& state = StateOf(chunk, number);
  const Samples samples = Load(stage.slice(), step, micro_batch);
  const Pass pass{samples.batch, samples.place, options_.dropout};
  if (chunk > 0) {
    MicroBatchState<T>& before = StateOf(chunk - 1, number);
    state.times = before.times;
    stage.ForwardActivations(state, pass, before.output());
  } else {
    if (profiler_.Active()) state.times = profiler_.NextMicroBatch(samples.batch);
    stage.slice().has_embedding ? stage.ForwardTokens(state, pass, samples.tokens)
                                : stage.ForwardActivations(state, pass, ReceiveInput());
  }
  if (stage.slice().has_head) return stage.HeadLoss(state, samples.targets, scale);
  if (IsLast(chunk)) boundary_.SendOutput(state.output(), stage.BoundaryBytes(state));
  return 0;
}

template <class T>
void StageRunner<T>::Backward(const Action& action, StepExchange<T>& exchange) {
  const auto chunk = static_cast<std::size_t>(action.stage / ranks_);
  const auto number = static_cast<std::size_t>(action.micro_batch);
  TransformerStage<T>& stage = chunks_[chunk].stage;
  MicroBatchState<T>& state = StateOf(chunk, number);
  const bool last = number + 1 == micro_batches_.size();
  const OnReady on_gradients = exchange.OnGradients(last);
  const T* d_output = stage.slice().has_head ? nullptr
                      : IsLast(chunk) ? reinterpret_cast<const T*>(boundary_.ReceiveGradient())
                                      : state.output();
  const T* d_input = stage.Backward(state, d_output, on_gradients, exchange.OnHeadGradients(last));
  state.times = nullptr;
  if (chunk == 0) {
    if (!stage.slice().has_embedding) boundary_.SendGradient(d_input, stage.BoundaryBytes(state));
    return exchange.EndMicroBatch(last);
  }
  // The output that the next chunk has used up makes room for its gradient.
  device_.CopyWithin(StateOf(chunk - 1, number).output(), d_input, stage.BoundaryBytes(state));
}

template <class T>
double StageRunner<T>::Loss(const Samples& samples) {
  const Pass pass{samples.batch, samples.place, 0};
  boundary_.Begin({BoundaryBytes(samples.batch)}, false);
  const T* hidden = chunks_.front().stage.slice().has_embedding ? nullptr : ReceiveInput();
  for (Chunk& chunk : chunks_) {
    MicroBatchState<T>& state = chunk.states.front();
    hidden = chunk.stage.slice().has_embedding
                 ? chunk.stage.ForwardTokens(state, pass, samples.tokens)
                 : chunk.stage.ForwardActivations(state, pass, hidden);
  }
  if (chunks_.back().stage.slice().has_head)
    return chunks_.back().stage.HeadLoss(chunks_.back().states.front(), samples.targets);
  boundary_.SendOutput(hidden, BoundaryBytes(samples.batch));
  return 0;
}

template class StageRunner<float>;
template class StageRunner<kernels::BFloat16>;
template class StageRunner<kernels::Float16>;

}  // namespace adaptive_train
