#include "runtime/train/stage_runner.h"

#include <algorithm>

namespace adaptive_train {
namespace {

int MicroBatchesOf(const RankPlan& own) {
  return static_cast<int>((own.samples + own.micro_batch - 1) / own.micro_batch);
}

}  // namespace

template <class T>
StageRunner<T>::StageRunner(const Plan& plan, const RankPlan& own, TransformerStage<T>& stage,
                            SampleLoader& loader, LayerProfiler& profiler, StepMeasure& measure)
    : stage_(stage),
      loader_(loader),
      profiler_(profiler),
      measure_(measure),
      schedule_(OneForwardOneBackward(plan.Pipeline(), own.stage, MicroBatchesOf(own))) {
  for (std::int64_t done = 0; done < own.samples; done += own.micro_batch)
    micro_batches_.push_back(
        {own.first_sample + done, std::min(own.micro_batch, own.samples - done)});
}

template <class T>
double StageRunner<T>::Run(std::int64_t step, double scale, StepExchange<T>& exchange) {
  double loss = 0;
  for (const ScheduledAction& action : schedule_) {
    const auto number = static_cast<std::size_t>(action.micro_batch);
    measure_.As(Activity::kCompute, [&] {
      if (action.backward) {
        Backward(number + 1 == micro_batches_.size(), exchange);
      } else {
        loss += Forward(micro_batches_[number], step, scale);
      }
    });
  }
  return loss;
}

template <class T>
double StageRunner<T>::Forward(const MicroBatch& micro_batch, std::int64_t step, double scale) {
  const Samples samples = measure_.As(Activity::kOther, [&] {
    return loader_.Training(step, micro_batch.first_sample, micro_batch.samples);
  });
  if (profiler_.Active()) stage_.TimeInto(profiler_.NextMicroBatch(samples.batch));
  stage_.ForwardTokens(samples.tokens, samples.batch, samples.place);
  return stage_.HeadLoss(samples.targets, scale);
}

template <class T>
void StageRunner<T>::Backward(bool last, StepExchange<T>& exchange) {
  const OnReady on_gradients = exchange.OnGradients(last);
  stage_.Backward(nullptr, on_gradients, exchange.OnHeadGradients(last));
  stage_.TimeInto(nullptr);
  exchange.EndMicroBatch(last);
}

template class StageRunner<float>;
template class StageRunner<kernels::BFloat16>;
template class StageRunner<kernels::Float16>;

}  // namespace adaptive_train
